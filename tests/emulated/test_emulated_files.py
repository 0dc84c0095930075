# SPDX-License-Identifier: Apache-2.0
"""The machines' data files, and the error messages for invalid ones."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from firsttouch.benchmarks import measure, probe
from firsttouch.errors import BadInput, Missing
from firsttouch.host import emulation as hosts
from firsttouch.records.schema import Record

from . import image, kvm, machine

GOOD = """\
description = "two NUMA nodes"
cpu = "max"
pus = 2
memory = "512 MiB"
distances = [[10, 21], [21, 10]]
"""


def test_every_machine_is_valid() -> None:
    assert {machine.load(name).name for name in machine.names()} >= {"amd-opteron", "intel-xeon", "small"}


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("pus = 2", "pus = [2, 2, 2]", "pus, memory and distances"),
        ("pus = 2", "pus = 2\noffline_pus = [0]", "offline"),
        ("[21, 10]", "[21, 11]", "distance"),
        ("pus = 2", 'pus = 2\nbase = "nowhere"', "nowhere.toml"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, old: str, new: str, reason: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(GOOD)
    assert machine.read(path).pus == (2, 2)
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(BadInput, match=f"wrong.toml: .*{reason}"):
        machine.read(path)


def test_the_probes_arrays_are_small_on_an_emulated_host_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def options(aspect: str, small: Sequence[str] | None = None) -> list[str]:
        """Return the options of the probe, except repetitions and order."""
        asked: list[str] = []

        def follow(_: str, words: list[str], *, say: object) -> Generator[list[Record], None, SimpleNamespace]:
            asked.extend(words)
            yield []
            return SimpleNamespace(status="complete")

        monkeypatch.setattr(probe, "follow", follow)
        assert [*measure.run(measure.AspectRequest(aspect), [], print, small=small)] == [[]]
        return [word for word in asked if "-repetitions=" not in word and "--seed=" not in word]

    assert options("contention", ["--sizes=1MiB"]) == []
    monkeypatch.setattr(hosts, "emulator", lambda: "QEMU with tcg")
    assert options("contention") == ["--array-bytes=4MiB"]
    assert options("contention", ["--sizes=1MiB"]) == ["--sizes=1MiB"]
    assert options("contention", []) == []
    (sizes,) = options("latency")
    assert sizes.startswith("--sizes=4KiB,8KiB,")
    assert sizes.endswith(",4096KiB,8192KiB")


def test_a_missing_program_is_an_error_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path: None)
    with pytest.raises(Missing, match=r"apt-get install .* busybox-static kmod numactl qemu-system-x86"):
        image.image()


def test_kvm_is_tried_once_per_machine_and_given_up_at_the_first_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FIRSTTOUCH_CACHE", str(tmp_path))
    monkeypatch.delenv("FIRSTTOUCH_ACCELERATOR", raising=False)
    monkeypatch.setattr("os.access", lambda path, mode: True)
    trials = kvm.Trials("6.1")
    assert trials.accelerators("small") == ["kvm", "tcg"]
    trials.worked("small")
    assert trials.accelerators("small") == ["kvm"]
    assert trials.accelerators("large") == ["kvm", "tcg"]
    trials.failed("it hung\nand more")
    assert trials.accelerators("large") == ["tcg"]
    monkeypatch.setenv("FIRSTTOUCH_ACCELERATOR", "qemu")
    with pytest.raises(BadInput, match="kvm or tcg"):
        trials.accelerators("small")
