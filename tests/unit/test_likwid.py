# SPDX-License-Identifier: Apache-2.0
"""likwid-bench: its kernels, its command line, and rates that agree with their bytes and seconds."""

import re

import pytest

from firsttouch.benchmarks import likwid
from firsttouch.benchmarks.likwid import argv, parse, widest
from firsttouch.errors import Missing, RunFailed


@pytest.fixture
def text(golden):
    return golden("likwid_scale_avx512.txt")


def test_flags_of_the_processor(tmp_path):
    file = tmp_path / "proc" / "cpuinfo"
    file.parent.mkdir()
    file.write_text("processor\t: 0\nflags\t\t: fpu sse2 avx\nbugs\t\t: x\nprocessor : 1\nflags : other\n")
    assert likwid.processor_flags(tmp_path) == {"fpu", "sse2", "avx"}
    file.write_text("processor\t: 0\nFeatures\t: asimd\n")
    assert likwid.processor_flags(tmp_path) == frozenset()


EVERY = {f"{k}_{i}" for k in ("copy", "stream") for i in ("avx512", "avx", "sse")}


@pytest.mark.parametrize(
    ("flags", "kernels", "suffix"),
    [
        ({"sse2", "avx", "avx512f"}, EVERY, "avx512"),
        ({"sse2", "avx"}, EVERY, "avx"),
        ({"sse2"}, EVERY, "sse"),
        ({"asimd"}, EVERY, ""),
        ({"sse2", "avx", "avx512f"}, EVERY - {"copy_avx512"}, "avx"),
        ({"sse2", "avx", "avx512f"}, EVERY - {"stream_avx512", "stream_avx"}, "sse"),
        ({"sse2", "avx"}, set(), ""),
    ],
)
def test_the_widest_instructions(flags, kernels, suffix):
    assert widest(flags, kernels) == suffix


def test_argv():
    assert argv("triad", instructions="avx", threads=4, array_bytes=8_192_000) == [
        "likwid-bench", "-t", "stream_avx", "-i", str(likwid.PASSES), "-W", "N:24576kB:4",
    ]  # fmt: skip
    assert argv("copy", instructions="", threads=1, array_bytes=8_192_000)[2] == "copy"


def test_the_installed_program(stand_in, monkeypatch, tmp_path):
    stand_in("likwid-bench", "printf 'clcopy - x\\ncopy_avx - y\\n\\nUsage:\\n'")
    assert likwid.available() == {"clcopy", "copy_avx"}
    for script in ("exit 0", "echo 'copy - x'; exit 7", "echo nonsense", "echo oops >&2; exit 1"):
        stand_in("likwid-bench", script)
        with pytest.raises(RunFailed, match="lists no kernel"):
            likwid.available()
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    with pytest.raises(Missing, match="likwid-bench"):
        likwid.available()


@pytest.mark.parametrize("threads", [1, 3, 12, 22])
def test_another_number_of_threads(text, threads):
    with pytest.raises(RunFailed, match=f" {threads} threads"):
        parse(text, threads=threads)


@pytest.mark.parametrize("field", ["Time", "MByte/s", "Data volume (Byte)"])
@pytest.mark.parametrize("value", ["", "0", "-1.5", "nan", "inf", "1.2.3", "x", "12e", "1e-400", "1e400"])
def test_a_figure_that_is_none(text, field, value):
    broken = re.sub(rf"^{re.escape(field)}:\s+\S+", f"{field}:\t\t{value}", text, flags=re.MULTILINE)
    assert broken != text
    with pytest.raises(RunFailed, match="likwid-bench printed"):
        parse(broken, threads=2)


@pytest.mark.parametrize("field", ["Time", "MByte/s", "Data volume (Byte)"])
@pytest.mark.parametrize("factor", [0.001, 0.5, 0.98, 1.02, 2, 1000])
def test_a_figure_that_was_changed(text, field, factor):
    figure = re.search(rf"^{re.escape(field)}:\s+(\S+)", text, flags=re.MULTILINE)
    broken = text[: figure.start(1)] + f"{float(figure[1]) * factor:.6f}" + text[figure.end(1) :]
    with pytest.raises(RunFailed, match="its bytes and time give"):
        parse(broken, threads=2)
