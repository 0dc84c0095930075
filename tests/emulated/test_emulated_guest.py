# SPDX-License-Identifier: Apache-2.0
"""The guest runs commands exactly: status, bytes, time limits, files."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .guest import Guest

pytestmark = [
    pytest.mark.parametrize("guest", ["small"], indirect=True),
]


def sh(script: str) -> list[str]:
    return ["sh", "-c", script]


def test_a_signal_is_a_negative_status(guest: Guest) -> None:
    assert guest.run(sh("kill -9 $$")).returncode == -signal.SIGKILL
    assert guest.run(sh("kill -TERM $$")).returncode == -signal.SIGTERM


def test_output_is_exact_and_kept_apart(guest: Guest) -> None:
    every_byte = bytes(range(256)) * 16
    (guest.shared / "bytes").write_bytes(every_byte)
    outcome = guest.run(sh("cat bytes; cat bytes bytes >&2"), cwd=guest.shared)
    assert outcome.stdout == every_byte
    assert outcome.stderr == every_byte * 2
    assert guest.run(["printf", "a\r\nb"]).stdout == b"a\r\nb"
    assert guest.run(["true"]).stdout == b""


def test_a_time_limit_kills_the_whole_process_group(guest: Guest) -> None:
    for seconds in (2, 10, 50):
        with pytest.raises(subprocess.TimeoutExpired) as caught:
            guest.run(sh("sleep 987 & echo begun; echo why >&2; sleep 987"), timeout=seconds)
        if caught.value.stderr:  # a command that is stopped before it begins shows nothing
            break
    assert (caught.value.stdout, caught.value.stderr) == (b"begun\n", b"why\n")
    assert guest.run(["pgrep", "-f", "sleep 987"]).returncode == 1


def test_the_shared_directory_is_the_same_on_both_sides(guest: Guest) -> None:
    ours, theirs = guest.shared / "ours", guest.shared / "theirs"
    for text in ("once", "twice, longer"):
        ours.write_text(text)
        assert guest.run(["cat", ours]).text == text
        guest.run(sh(f"printf '%s' '{text}' > {theirs}"), check=True)
        assert theirs.read_text() == text


def test_the_root_is_the_hosts_and_thrown_away(guest: Guest, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("as it was")
    assert guest.run(["cat", kept]).text == "as it was"
    guest.run(
        sh(f"echo changed > {kept}; echo new > {tmp_path}/new; touch /etc/new /run/new /tmp/new"), check=True
    )
    assert kept.read_text() == "as it was"
    assert not (tmp_path / "new").exists()
    assert not Path("/etc/new").exists()


def test_the_checkout_and_its_interpreter_work_inside(guest: Guest) -> None:
    source = Path(__file__).resolve().parents[2] / "src"
    outcome = guest.run(
        [sys.executable, "-c", "import firsttouch; print(firsttouch.__file__)"], env={"PYTHONPATH": str(source)}
    )
    assert outcome.text == f"{source / 'firsttouch' / '__init__.py'}\n", outcome.error_text


def test_a_cpuset_can_forbid_numa_nodes(guest: Guest) -> None:
    script = (
        "cd /sys/fs/cgroup && mkdir -p test && echo 0,2 > test/cpuset.mems && echo 0-1,4-5 > test/cpuset.cpus &&"
        "echo $$ > test/cgroup.procs && grep _allowed_list /proc/self/status && numactl --membind=1 true"
    )
    outcome = guest.run(sh(script))
    assert outcome.text.split()[:4] == ["Cpus_allowed_list:", "0-1,4-5", "Mems_allowed_list:", "0,2"]
    assert outcome.returncode == 1
    assert "<1> is invalid" in outcome.text  # numactl says it on standard output


def test_a_pu_can_be_taken_offline_and_brought_back(guest: Guest) -> None:
    switch = "/sys/devices/system/cpu/cpu5/online"
    assert guest.run(sh(f"echo 0 > {switch}; nproc; echo 1 > {switch}; nproc")).text == "7\n8\n"
