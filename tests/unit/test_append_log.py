# SPDX-License-Identifier: Apache-2.0
"""Files that grow by lines: whatever a killed writer leaves of a line, other lines stay and later ones follow."""

import errno
import itertools
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttouch.campaign.journal import Entry, Journal, now
from firsttouch.errors import BadInput
from firsttouch.fleet import verdict_log
from firsttouch.fleet.actions import Actions
from firsttouch.judge.verdict import HostVerdict
from firsttouch.records import append_log, schema
from firsttouch.records.append_log import AppendLog
from firsttouch.records.schema import Record

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(TEXT, JSON, max_size=3)


def log_of(file):
    return AppendLog(file, dict, lambda error: f"not a line ({error}): remove it")


@pytest.fixture(scope="module", autouse=True)
def without_disk():
    """Nothing is forced to the disk, which would take a hundred times as long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


def torn(values, *, ascii_only=False):
    """Yield the text of a log with lines of *values* as it is cut behind each byte, and the values that stay."""
    lines = [json.dumps(value, ensure_ascii=ascii_only).encode() + b"\n" for value in values]
    ends = list(itertools.accumulate(map(len, lines)))
    for cut in range(ends[-1] + 1):
        # A line that only lacks its newline is complete.
        yield b"".join(lines)[:cut], values[: sum(end - 1 <= cut for end in ends)]


@given(st.lists(OBJECTS, min_size=1, max_size=4), st.booleans())
def test_a_part_of_a_line_is_never_a_line(values, ascii_only):
    for text, whole in torn(values, ascii_only=ascii_only):
        assert [json.loads(line) for line in append_log.whole_lines(text)] == whole


def test_lines_that_are_wrong_are_named(tmp_path):
    log = log_of(tmp_path / "log")
    assert log.lines() == []
    log.file.write_bytes(b'{"a": 1}\n5\n\xff\n{"a"\n' + b"[" * 100_000 + b'\n{"a": 2}\n')
    first, *wrong, last = log.lines()
    assert (first, last) == ({"a": 1}, {"a": 2})
    assert [error.line for error in wrong] == [2, 3, 4, 5]
    for error in wrong:
        assert str(error).startswith(f"{log.file}:{error.line}: not a line (")
        assert str(error).endswith(": remove it")
    with pytest.raises(BadInput, match=r"log:2: not a line"):
        log.values()
    log.append({"a": 3})
    assert log.lines() == [first, *wrong, last, {"a": 3}]


def test_a_log_that_was_replaced_or_removed_is_read_again(tmp_path):
    log = log_of(tmp_path / "log")
    log.append({"a": 1}, {"a": 2})
    assert log.lines() == [{"a": 1}, {"a": 2}]
    log.file.write_text('{"b": 1}\n')
    assert log.lines() == [{"b": 1}]
    log.file.unlink()
    assert log.lines() == []


def test_where_lines_begin_and_end(tmp_path):
    file = tmp_path / "log"
    assert append_log.append(file, "{}\n") == (0, 3)
    with file.open("a") as out:
        out.write('{"part')
    assert append_log.append(file, '{"a":1}\n{}\n') == (3, 14)
    file.write_bytes(b'{}\n{"a":1}')
    assert append_log.append(file, "{}\n") == (11, 14)
    assert file.read_bytes() == b'{}\n{"a":1}\n{}\n'


@pytest.mark.parametrize("before", [b"{}\n", b"{}", b""])
def test_lines_that_cannot_be_forced_to_the_disk_are_not_there(tmp_path, monkeypatch, before):
    file = tmp_path / "log"
    file.write_bytes(before)

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as error:
        append_log.append(file, "{}\n")
    assert error.value.filename == str(file)
    assert file.read_bytes() == before


# ----------------------------------------------------------------------
# The files that grow by lines: a function that appends the line of a number, and one that returns the numbers


class Steps:
    def __init__(self, folder):
        self.journal, self.file = Journal(folder), folder / "steps.jsonl"

    def append(self, number):
        self.journal.write(Entry(str(number), "measured", now(), "n1"))

    def numbers(self):
        journal = Journal(self.file.parent)
        assert journal.damage == []
        return [int(entry.step) for entry in journal.entries()]


class Records:
    def __init__(self, folder):
        self.file = folder / "records.jsonl"

    def append(self, number):
        schema.append(self.file, [Record("topology", "pus", "1", "neither", (float(number),), host="n1")])

    def numbers(self):
        return [int(r.value) for r in schema.read(self.file)]


class Quarantine:
    def __init__(self, folder):
        self.file = folder / "actions.jsonl"

    def append(self, number):
        Actions(self.file.parent).note("hold", f"n{number}")

    def numbers(self):
        return [int(action.host[1:]) for action in Actions(self.file.parent).lines]


class Verdicts:
    def __init__(self, folder):
        self.file = folder / "n1.jsonl"

    def append(self, number):
        verdict_log.append(HostVerdict("n1", "s", (), 0, ()), float(number), "c", self.file.parent)

    def numbers(self):
        return [int(line.time) for line in verdict_log.read(self.file.parent).get("n1", ())]


@pytest.mark.parametrize("kind", [Steps, Records, Quarantine, Verdicts])
def test_every_log_is_read_and_continued_wherever_it_is_torn(tmp_path, kind):
    log = kind(Path(tmp_path))
    for number in (1, 2):
        log.append(number)
    text = log.file.read_bytes()
    others = {file: file.read_bytes() for file in log.file.parent.iterdir() if file != log.file}
    for cut in range(len(text) + 1):
        for file, content in others.items():
            file.write_bytes(content)
        log.file.write_bytes(text[:cut])
        before = [1, 2][: text[: cut + 1].count(b"\n")]
        assert log.numbers() == before
        if cut % 10 == 0 or cut >= len(text) - 2:
            log.append(3)
            assert log.numbers() == [*before, 3]
