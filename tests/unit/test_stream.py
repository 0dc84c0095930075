# SPDX-License-Identifier: Apache-2.0
"""STREAM: threads on PUs, and that only a validated, consistent output is a result."""

import re
import sys

import pytest

from factories.processes import write_program
from firsttouch.benchmarks import stream
from firsttouch.benchmarks.stream import parse
from firsttouch.errors import RunFailed


@pytest.fixture
def text(golden):
    return golden("stream_2_threads.txt")


def test_one_thread_on_each_pu():
    assert stream.environment(3, (8, 2, 0)) == {
        "OMP_NUM_THREADS": "3",
        "OMP_PLACES": "{0},{2},{8}",
        "OMP_PROC_BIND": "true",
    }
    assert stream.environment(1, (8, 2))["OMP_PLACES"] == "{2}"


def test_whether_it_is_installed(stand_in, monkeypatch, tmp_path):
    on_path = stand_in("stream", "exit 0")
    assert stream.program() == str(on_path)
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    assert stream.program() is None
    (tmp_path / "bin").mkdir()
    program = write_program(tmp_path / "bin" / "stream", "exit 0")
    assert stream.program() == str(program)


@pytest.mark.parametrize("threads", [1, 3, 22])
def test_another_number_of_threads(text, threads):
    with pytest.raises(RunFailed, match=f"2 threads, .*{threads}"):
        parse(text, threads=threads)


def test_without_openmp_there_is_one_thread(golden):
    text = golden("stream_no_openmp.txt")
    assert set(parse(text, threads=1)[0]) == set(stream.KERNELS)
    with pytest.raises(RunFailed, match="build it with -fopenmp"):
        parse(text, threads=2)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Failed Validation on array a[], AvgRelAbsErr > epsilon (1.000000e-13)",
        "Failed Validation on array c[], AvgRelAbsErr > epsilon (1.000000e-13)\nSolution Validates",
    ],
)
def test_it_did_not_validate(text, line):
    broken = re.sub(r"^Solution Validates.*$", line, text, flags=re.MULTILINE)
    with pytest.raises(RunFailed, match="check of its results"):
        parse(broken, threads=2)


@pytest.mark.parametrize("kernel", ["Copy", "Scale", "Add", "Triad"])
@pytest.mark.parametrize("value", ["", "0.0", "-1.5", "nan", "inf", "1.2.3", "x", "1e5", "99999.9", "1.0"])
def test_a_rate_that_is_none_or_was_changed(text, kernel, value):
    broken = re.sub(rf"^{kernel}:\s+\S+", f"{kernel}:   {value}", text, flags=re.MULTILINE)
    with pytest.raises(RunFailed, match="stream printed"):
        parse(broken, threads=2)


@pytest.mark.parametrize("number", [0, 1, 19999999, 10000000, 200000000])
def test_an_array_that_does_not_fit_the_rates(text, number):
    broken = text.replace("Array size = 20000000 ", f"Array size = {number} ")
    if number == 19999999:
        assert parse(broken, threads=2)[1] == 8 * number
        return
    with pytest.raises(RunFailed, match="stream printed"):
        parse(broken, threads=2)


def test_elements_of_four_bytes(text):
    """A STREAM of floats with the same rates: twice the elements."""
    other = text.replace("uses 8 bytes", "uses 4 bytes").replace("= 20000000 ", "= 40000000 ")
    assert parse(other, threads=2) == parse(text, threads=2)


def test_two_outputs_are_none(text):
    with pytest.raises(RunFailed, match="stream printed no rates"):
        parse(text + text, threads=2)
