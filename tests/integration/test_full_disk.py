# SPDX-License-Identifier: Apache-2.0
"""On a full disk, the message names the file or folder and the cause, and nothing is left of the output."""

import errno
import os
import subprocess

import pytest

from factories.processes import write_program
from firsttouch.execution.jobs import Job, Outcome
from firsttouch.records import append_log, atomic_files

FULL = "No space left on device"


@pytest.fixture
def small(tmp_path):
    """Returns a folder on a file system of 1 MiB."""
    if os.geteuid() != 0:
        pytest.skip("only root mounts a small file system")
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", folder], check=False).returncode:
        pytest.skip("this root may not mount a file system")
    yield folder
    subprocess.run(["umount", folder], check=True)


def fill(folder):
    """Leave no block free."""
    size = os.statvfs(folder).f_bfree * os.statvfs(folder).f_frsize
    (folder / "fill").write_bytes(bytes(size))


@pytest.fixture(scope="module")
def reads(lambda_work, tmp_path_factory):
    """Returns a file of 4,000 reads and bwa's index."""
    file = tmp_path_factory.mktemp("reads") / "r.fq"
    with lambda_work[1][0].open("rb") as source:
        file.write_bytes(b"".join(line for line, _ in zip(source, range(16_000), strict=False)))
    return file, lambda_work[0]


ALIGN = ["align", "1Inst_Original", "--share-host", "-o", "{small}/out.bam"]
BWA = ["--", "bwa", "mem", "-t", "1", "{index}", "{reads}"]


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        ([*ALIGN, *BWA], "(writing {small}/out.bam)"),
        ([*ALIGN, "--sort", *BWA], "(writing {small}/out.bam)"),
        ([*ALIGN, "--progress", "text", *BWA], "{small}: "),
        ([*ALIGN, "--resume", *BWA], "{small}: "),
        ([*ALIGN[:-1], "{small}/out.sam", *BWA], "{small}/out.sam"),
        (["reads", "block", "{reads}", "-o", "{small}/b.fq"], "{small}/b.fq"),
        (["init", "{small}/site"], "{small}/site/"),
    ],
)
def test_commands_on_a_full_disk(run_here, reads, small, argv, name):
    (small / "taken").write_bytes(bytes(980 << 10))
    values = {"small": small, "index": reads[1], "reads": reads[0]}
    done = run_here(*(word.format(**values) for word in argv))
    assert done.returncode in {1, 2}, done.stderr
    message = done.stderr.splitlines()[-1]
    assert FULL in message, done.stderr
    assert name.format(**values) in message, done.stderr
    assert {file.name for file in small.iterdir()} <= {"taken", "site", ".out.bam.firsttouch"}


def test_lines_that_do_not_fit_name_their_file(small):
    (small / "records.jsonl").write_text("{}\n")
    fill(small)
    with pytest.raises(OSError, match=FULL) as error:
        append_log.append(small / "records.jsonl", "x" * 8192)
    assert error.value.filename == str(small / "records.jsonl")
    with pytest.raises(OSError, match=FULL) as error:
        atomic_files.write(small / "matrix.csv", "x" * 8192)
    assert error.value.filename == str(small / "matrix.csv")


@pytest.mark.parametrize("variable", [None, "TMPDIR"])
def test_a_silent_program_on_a_full_disk(small, tmp_path, variable):
    program = write_program(tmp_path / "silent", "exit 1")
    place = tmp_path if variable else small
    job = Job([str(program)], place / "out", place / "log", env={variable: str(small)} if variable else {})
    fill(small)
    outcome = Outcome(job, 1, 0.0, 0.0, 0.0, 0, None)
    assert outcome.failure() == f"{program} ended with status 1: it printed nothing; {small}: {FULL}"
    (small / "fill").unlink()
    assert outcome.failure() == f"{program} ended with status 1: it printed nothing"


@pytest.mark.parametrize(
    ("error", "named"),
    [
        (OSError(errno.ENOSPC, FULL), True),
        (OSError(errno.EIO, "Input/output error"), True),
        (OSError(errno.ENOSPC, FULL, "/source", None, "{partial}"), True),
        (OSError(errno.ENOSPC, FULL, "/another"), False),
        (OSError(errno.ECONNRESET, "Connection reset by peer"), False),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), False),
    ],
)
def test_which_errors_name_the_output(tmp_path, error, named):
    before = error.filename

    def write():
        with atomic_files.replacing(tmp_path / "out") as partial:
            error.filename2 = error.filename2 and str(partial)
            raise error

    with pytest.raises(OSError, match=error.strerror) as raised:
        write()
    assert raised.value.filename == (str(tmp_path / "out") if named else before)
    assert raised.value.errno == error.errno
