# SPDX-License-Identifier: Apache-2.0
"""When a disk is full, or any call on a file fails, the message names the file or folder and the cause.

Nothing is left of the output, and nothing that was there is lost.
"""

import errno
import json
import os

import pytest
from msgspec.structs import replace

from factories import genomes
from factories.failing_calls import failures
from factories.fleet_records import records_by_host
from factories.processes import write_program
from firsttouch.execution.process_runner import Job, Outcome
from firsttouch.records import append_log, atomic_files, schema, store

FULL = "No space left on device"


@pytest.fixture
def small(small_disk):
    """Returns a folder on a file system of 1 MiB."""
    return small_disk("1m")


def fill(folder):
    """Leave no block free."""
    size = os.statvfs(folder).f_bfree * os.statvfs(folder).f_frsize
    (folder / "fill").write_bytes(bytes(size))


@pytest.fixture(scope="module")
def reads(lambda_work, tmp_path_factory):
    """Returns a file of 4,000 reads and bwa's index."""
    (file,) = genomes.first(4000, lambda_work[1][:1], tmp_path_factory.mktemp("reads"))
    return file, lambda_work[0]


ALIGN = ["run", "1x-default", "--share-host", "-o", "{small}/out.bam"]
BWA = ["--", "bwa", "mem", "-t", "1", "{index}", "{reads}"]


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        ([*ALIGN, *BWA], "(writing {small}/out.bam)"),
        ([*ALIGN, "--sort", *BWA], "(writing {small}/out.bam)"),
        ([*ALIGN, "--progress", "text", *BWA], "{small}: "),
        ([*ALIGN[:-1], "{small}/out.sam", *BWA], "{small}/out.sam"),
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


# ----------------------------------------------------------------------
# Each call of a command on its files fails once


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """Returns a folder with a store of five hosts, an earlier report, and records of a sixth host."""
    folder = tmp_path_factory.mktemp("failing") / "template"
    *others, last = records_by_host(6, 2).values()
    for hosts in (others[:3], others[3:]):
        store.append(folder / "st", [replace(r, system="local") for records in hosts for r in records])
    schema.append(folder / "records.jsonl", [replace(r, system="local") for r in last])
    (folder / "old").mkdir()
    (folder / "old" / "summary.json").write_text(json.dumps({"document": "firsttouch report"}))
    return folder


def one_line(failure):
    """Return the only line of a command that failed."""
    assert failure.status in {1, 2}, failure
    (line,) = failure.err.splitlines()
    assert line.startswith(f"firsttouch: error: {failure.folder}/"), failure
    assert atomic_files.PREFIX not in line.removeprefix(f"firsttouch: error: {failure.folder}/"), failure
    assert line.endswith(FULL), failure
    return line


def hosts_of(folder):
    """Return how many records of each host a store has, all of which can be read."""
    (part,) = store.tables(store.find([folder]))
    rows = part.records(["host"])
    assert not [file for file in folder.iterdir() if file.name.startswith(".")]
    return dict(rows["host"].value_counts().iter_rows())


def test_an_append_is_stored_as_a_whole_or_not_at_all_whatever_fails(template, tmp_path):
    argv = ["store", "append", "{}/st", "{}/records.jsonl"]
    *failed, succeeded = failures(template, argv, error=errno.ENOSPC, work=tmp_path)
    before, after = hosts_of(template / "st"), hosts_of(succeeded.folder / "st")
    assert before.items() < after.items()
    assert {"open", "write", "fsync", "rename", "close"} == {failure.call.split()[0] for failure in failed}
    for failure in failed:
        is_written = "is written, but a crash of the host may lose it" in one_line(failure)
        assert hosts_of(failure.folder / "st") == (after if is_written else before), failure
        # The folder is synced after the values, which do not count without their sessions, and at the end.
        assert not is_written or failure.call.endswith("/st")
    assert any("is written, but" in failure.err for failure in failed)


def test_a_verdict_is_complete_or_says_what_could_not_be_read(template, tmp_path):
    argv = ["validate", "--system", "local", "{}/st", "{}/records.jsonl"]
    *failed, succeeded = failures(template, argv, error=errno.EIO, work=tmp_path)
    assert "n005" in succeeded.out
    for failure in failed:
        unread = [line for line in failure.err.splitlines() if "left out: " in line]
        if not unread:
            assert (failure.status, failure.out) == (succeeded.status, succeeded.out), failure
            continue
        assert (failure.status, len(unread)) == (2, 1), failure
        assert unread[0].endswith("records.jsonl: cannot be read: Input/output error"), failure
        assert "verdict n000 suspect" in failure.out, failure


def test_a_report_is_complete_or_that_of_before_whatever_fails(template, tmp_path):
    argv = ["report", "{}/st", "{}/records.jsonl", "-o", "{}/old"]
    *failed, succeeded = failures(template, argv, error=errno.ENOSPC, work=tmp_path)
    complete = sorted(file.name for file in (succeeded.folder / "old").iterdir())
    assert {"index.html", "summary.json"} < {*complete}
    there = sorted(file.name for file in template.iterdir())
    for failure in failed:
        if "left out: " in failure.err:  # of the input
            assert failure.status == 2
            names = complete
        elif failure.status == 0:
            names = complete
        else:
            one_line(failure)
            names = ["summary.json"]
        assert sorted(file.name for file in (failure.folder / "old").iterdir()) == names, failure
        left = {file.name for file in failure.folder.iterdir()}
        if failure.status == 0 and f" {failure.folder}/.old.old." in failure.call:
            left = {name for name in left if not name.startswith(".old.old.")}  # the earlier report stays there
        assert sorted(left) == there, failure
