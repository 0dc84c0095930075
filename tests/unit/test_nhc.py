# SPDX-License-Identifier: Apache-2.0
"""The check for LBNL NHC, called as NHC calls it: in its own shell, with its ``die``."""

import os
import shutil
import socket
import time

import pytest

from factories.processes import captured, write_program
from firsttouch import paths
from firsttouch.fleet import verdict_log
from firsttouch.judge.verdict import Finding, HostVerdict
from firsttouch.records.cases import Case

CHECK = paths.ROOT / "slurm" / "nhc" / "firsttouch.nhc"
SCRIPT = """
die() { echo "died: ${*:2}"; exit "$1"; }
HOSTNAME=${KERNEL_NAME:-$HOSTNAME}
. "$0"
check_firsttouch "$@"
exit $?
"""


@pytest.fixture
def check(tmp_path):
    """Return a function that runs the check and returns its exit status and message."""

    def run(*argv, hostname=""):
        # Its PATH has no program.
        env = {"FIRSTTOUCH_VERDICTS": str(tmp_path), "PATH": "", "KERNEL_NAME": hostname}
        bash = shutil.which("bash")
        done = captured([bash, "-c", SCRIPT, CHECK, *argv], env=env, timeout=60)
        assert done.stderr == ""
        return done.returncode, done.stdout

    return run


def write(folder, word, *, age=0, why="it is slow"):
    verdict = HostVerdict(
        host=socket.gethostname(),
        system="s",
        findings=(Finding(Case("s", "latency", "random_latency", {}, "ns", "lower"), (1.0,), None, word, why),),
        unjudged=0,
        missing=(),
    )
    line = verdict_log.line(verdict, measured=time.time() - age)
    (folder / verdict.host).write_text(line + "\n")


@pytest.mark.parametrize("word", ["pass", "undecided", "suspect", "invalid"])
def test_only_a_fail_is_a_proof_against_a_host(check, tmp_path, word):
    write(tmp_path, word)
    assert check() == (0, "")
    assert check("60") == (0, "")


def test_a_pipe_in_place_of_a_verdict_blocks_neither_the_check_nor_the_next_verdict(check, tmp_path):
    file = tmp_path / socket.gethostname()
    os.mkfifo(file)
    status, message = check()
    assert (status, "is not a verdict" in message) == (1, True)
    verdict = HostVerdict(host=file.name, system="s", findings=(), unjudged=0, missing=())
    verdict_log.write(verdict, time.time(), file)
    assert file.read_text().split()[0] == verdict.verdict
    assert check()[0] == 0


def test_a_fail_dies_with_the_reason(check, tmp_path):
    write(tmp_path, "fail", why="it's $(slow); `x`")
    status, message = check()
    assert status == 1
    assert message.startswith("died: check_firsttouch:")
    assert "random latency: it_s _(slow); _x_" in message


def test_an_age_makes_a_verdict_necessary(check, tmp_path):
    assert check() == (0, "")
    status, message = check("60")
    assert (status, "no verdict of this host" in message) == (1, True)
    write(tmp_path, "pass", age=120)
    assert check() == (0, "")
    status, message = check("60")
    assert (status, "s old, at most 60" in message) == (1, True)


def test_a_verdict_of_the_future_is_not_fresh(check, tmp_path):
    write(tmp_path, "pass", age=-3600)
    assert check() == (0, "")
    status, message = check("60")
    assert (status, "a clock is wrong" in message) == (1, True)


@pytest.mark.parametrize(
    ("kernel", "slurm"),
    [("N7", "n7"), ("N7.Cluster.Example", "n7"), ("N7.Cluster.Example", "n7.cluster.example"), ("n7.lab", "N7")],
)
def test_slurms_name_is_found_in_other_letters_than_the_kernels(check, tmp_path, kernel, slurm):
    (tmp_path / "n70").write_text("pass 1 n70 s\n")
    (tmp_path / slurm).write_text(f"fail 1 {slurm} s it is slow\n")
    status, message = check(hostname=kernel)
    assert (status, "it is slow" in message) == (1, True)


@pytest.mark.parametrize(
    "text", ["", "rubbish\n", "pass\n", "good 1 n1 s x\n", "fail x n1 s x\n", f"fail {'9' * 20} n1 s x\n"]
)
def test_a_file_that_is_not_a_verdict(check, tmp_path, text):
    (tmp_path / socket.gethostname()).write_text(text)
    status, message = check()
    assert (status, "is not a verdict" in message) == (1, True)


@pytest.mark.parametrize("age", ["a week", "08", "9" * 20])
def test_an_age_that_is_none(check, age):
    assert check(age)[0] == 1


def test_the_time_of_a_verdict_may_begin_with_0(check, tmp_path):
    (tmp_path / socket.gethostname()).write_text("pass 08 n1 s x\n")
    status, message = check("60")
    assert (status, "s old" in message) == (1, True)


@pytest.mark.parametrize(
    ("status", "word", "dies"),
    [
        *((status, "verdict n1 fail:", status == 1) for status in range(4)),
        *((1, word, False) for word in ("", "verdict n1 suspect:", "Traceback:", "x verdict n1 fail:")),
    ],
)
def test_a_check_that_measures_dies_only_of_a_fail(tmp_path, status, word, dies):
    program = tmp_path / "firsttouch"
    write_program(program, f'echo "$@" >&2\necho a: 1\necho "{word} it\'s \\$(slow)"\nexit {status}')
    script = SCRIPT.replace("check_firsttouch", "check_firsttouch_now")
    env = {"FIRSTTOUCH": str(program), "PATH": "/usr/bin:/bin"}
    argv = [shutil.which("bash"), "-c", script, CHECK, "40", "amd-opteron"]
    done = captured(argv, env=env)
    assert done.returncode == int(dies)
    assert done.stdout == ("died: check_firsttouch_now:  verdict n1 fail: it_s _(slow)\n" if dies else "")
    wrong = captured([*argv[:4], "x"], env=env)
    assert (wrong.returncode, "not a number of seconds" in wrong.stdout) == (1, True)
