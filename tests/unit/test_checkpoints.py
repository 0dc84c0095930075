# SPDX-License-Identifier: Apache-2.0
"""Finished parts of an output: whose they are, what they are of, and what a damaged journal says."""

import functools
import json
import operator
import os
import re
import shutil
import stat

import pytest

from firsttouch.errors import BadInput
from firsttouch.execution.jobs import Job, Outcome
from firsttouch.execution.placement_check import Observed
from firsttouch.genomics import checkpoints
from firsttouch.genomics.checkpoints import Checkpoints, Stretch
from firsttouch.genomics.pipe_writer import StopRequest
from firsttouch.genomics.sam import ByteRange
from firsttouch.genomics.stream import Result
from firsttouch.scenarios.evidence import Coverage
from firsttouch.scenarios.placement import Placement

IDENTITY = {"command": ["bwa", "mem"], "scenario": "2Inst_Original", "aligner": "1.0", "checkpoint": 100}


@pytest.fixture
def messages():
    return []


@pytest.fixture
def output(tmp_path, messages):
    """An output with three finished parts of two records, the last one without a known placement."""
    out, text = tmp_path / "o.sam", tmp_path / "text"
    text.write_text("r1\nr2\n")
    with Checkpoints(out, IDENTITY, 100, messages.append) as kept:
        kept.begin(b"@HD\n")
        for placement in (("", ""), ("", ""), ("never seen", "never seen")):
            kept.placement = lambda placement=placement: placement
            kept.send(ByteRange(text, 0, 6), StopRequest())
            kept.end_part(2, 100)
    return out


def resumed(output, messages, **changes):
    return Checkpoints(output, IDENTITY | changes, 100, messages.append)


def journal(output):
    return checkpoints.folder_of(output) / "journal.jsonl"


def contents(output):
    return {file.name: file.read_bytes() for file in checkpoints.folder_of(output).iterdir()}


def test_parts_are_used_and_keep_their_placement(output, messages):
    assert stat.S_IMODE(checkpoints.folder_of(output).stat().st_mode) == 0o700
    with resumed(output, messages) as kept:
        assert (kept.records, kept.bases, kept.complete) == (6, 300, False)
        assert [part.misplaced for part in kept.stretches] == ["", "", "never seen"]
        assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", part.time) for part in kept.stretches)
    assert messages == ["resuming: 6 records are aligned, in 3 finished parts"]


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"checkpoint": 200}, "checkpoint (100, now 200)"),
        ({"aligner": "2.0", "scenario": "1Inst"}, "scenario (2Inst_Original, now 1Inst), aligner (1.0, now 2.0)"),
        ({"command": ["bwa", "mem", "-a"]}, "differs in command: repeat"),
        ({"inputs": []}, "differs in inputs: repeat"),
    ],
)
def test_parts_of_another_run_stay(output, messages, changes, names):
    before = contents(output)
    with pytest.raises(BadInput) as error:
        resumed(output, messages, **changes)
    assert names in str(error.value)
    assert f"rm -r {checkpoints.folder_of(output)}" in str(error.value)
    assert contents(output) == before
    resumed(output, messages).__exit__()


def test_a_run_that_finished_nothing_is_no_reason_to_refuse(tmp_path, messages):
    out = tmp_path / "o.sam"
    resumed(out, messages).__exit__()
    with resumed(out, messages, checkpoint=200) as kept:
        assert kept.stretches == []
    assert json.loads(journal(out).read_text())["checkpoint"] == 200


LINE = '{"file": "000009.sam", "size": 6, "sha256": "x", "records": 2, "bases": 100}'


@pytest.mark.parametrize(
    ("number", "line"),
    [
        (1, "{{"),
        (1, "[1]"),
        (2, "{{"),
        (2, LINE[:-9]),
        (3, "7"),
        (3, LINE.replace("size", "sizes")),
        (3, LINE.replace("6", '"6"')),
        (3, LINE.replace("000009.sam", "../o.sam")),
        (4, LINE.replace("}", ', "more": 1}')),
    ],
)
def test_a_damaged_line_is_named(output, messages, number, line):
    lines = journal(output).read_text().splitlines()
    lines[number - 1] = line
    journal(output).write_text("\n".join(lines) + "\n")
    before = contents(output)
    with pytest.raises(BadInput, match=f"journal.jsonl:{number}: this line .* is damaged: begin anew by rm -r "):
        resumed(output, messages)
    assert contents(output) == before


def test_a_last_line_that_was_written_in_part_is_left_out(output, messages):
    text = journal(output).read_text()
    journal(output).write_text(text[:-20])
    with resumed(output, messages) as kept:
        assert len(kept.stretches) == 2


def test_a_damaged_part_is_aligned_again(output, messages):
    (checkpoints.folder_of(output) / "000001.sam").write_text("r1\nr3\n")
    with resumed(output, messages) as kept:
        assert len(kept.stretches) == 1
    assert messages[0] == "the last 2 of 3 finished parts are damaged, and are aligned again"


def test_a_journal_without_placements_is_unverified(output, messages):
    keys = ("file", "size", "sha256", "records", "bases")
    first, *parts = map(json.loads, journal(output).read_text().splitlines())
    lines = [first, *({key: part[key] for key in keys} for part in parts)]
    journal(output).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with resumed(output, messages) as kept:
        assert {part.unverified for part in kept.stretches} == {"the run that made it did not record it"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("name", ["", "journal.jsonl", "000001.sam"])
def test_parts_of_another_user_are_refused(output, messages, name):
    os.chown(checkpoints.folder_of(output) / name, 12345, -1)
    before = contents(output)
    with pytest.raises(BadInput, match=r"it belongs to another user \(12345\), who may .* rm -r "):
        resumed(output, messages)
    assert contents(output) == before


@pytest.mark.parametrize("kind", ["link", "file"])
def test_what_is_not_a_folder_is_refused(output, messages, kind):
    folder = checkpoints.folder_of(output)
    target = folder.rename(folder.with_name("moved"))
    folder.symlink_to(target) if kind == "link" else folder.write_text("x")
    with pytest.raises(
        BadInput, match=r"\.o\.sam\.firsttouch: not a folder, but --resume keeps finished parts there"
    ):
        resumed(output, messages)


def test_a_run_that_does_not_resume_keeps_the_parts(output):
    before, folder = contents(output), checkpoints.folder_of(output)
    with pytest.raises(BadInput) as refused:
        checkpoints.refuse_finished(output)
    assert str(refused.value) == (
        f"{folder}: 3 finished parts of {output} from a run that was stopped: use them with --resume and that "
        f"run's command, or begin anew by rm -r {folder}"
    )
    assert contents(output) == before
    for file in folder.glob("0*.sam"):
        file.rename(folder / "unfinished.sam")
    checkpoints.refuse_finished(output)
    shutil.rmtree(folder)
    checkpoints.refuse_finished(output)


def part(misplaced="", unverified=""):
    return Stretch("000000.sam", 1, "", 1, 1, misplaced, unverified, "2026-11-23T10:00:00Z")


@pytest.mark.parametrize(
    ("parts", "misplaced", "unverified"),
    [
        ([], "no instance was started", "no instance was started"),
        ([part(), part()], "", ""),
        ([part(), part("not seen", "not seen")], *["part 1 of an earlier run: not seen"] * 2),
        ([part("not seen", "not seen"), part("on PU 3")], "part 1 of an earlier run: on PU 3", ""),
    ],
)
def test_the_placement_of_a_run_that_launched_nothing_is_that_of_its_parts(parts, misplaced, unverified):
    result = Result(0, 0, 0.0, (), frozenset(), tuple(parts))
    assert (result.misplaced, result.unverified) == (misplaced, unverified)


def launched(seen_mib):
    """Return the outcome of an instance that had 300 MiB, of which so many were sampled; None: it was not."""
    pages = {0: (seen_mib or 0) << 8} if seen_mib else {}
    observed = Observed(looks=1, pus=frozenset({0}), held=frozenset({0}), pages=pages, largest_peak=300 << 20)
    observed.modes = {"default": sum(pages.values())}
    asked = Placement((0,), (0,), (), "original", "whole")
    return Outcome(Job(["bwa"], placement=asked), 0, 0.0, 1.0, 1.0, 300 << 20, observed)


def test_each_launch_may_have_a_little_memory_unseen():
    launches = [Coverage(seen=1 << 20, anonymous=5 << 19)] * 6
    together = functools.reduce(operator.add, launches)
    assert (launches[0].reason(), together.reason()) == ("", "")
    assert "6 MiB of memory were sampled" in (together + Coverage(0, 300 << 20)).reason()


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        ([300], ""),
        ([300, 300, None], ""),
        ([300, 1, None], "instance 0: .*: 301 MiB of memory were sampled, and the program had at least 900 MiB"),
        ([1, 1], "instance 0: .*: 1 MiB of memory were sampled, and the program had at least 300 MiB"),
        ([None, None], "instance 0: .*: the instance ended before it could be sampled"),
    ],
)
def test_some_launches_of_an_instance_stand_for_all_if_they_show_most_of_the_memory(seen, reason):
    result = Result(9, 9, 1.0, tuple((launched(mebibytes),) for mebibytes in seen), frozenset({0}))
    assert result.misplaced == result.unverified
    assert re.match(reason, result.unverified)
    assert bool(reason) == bool(result.unverified)
