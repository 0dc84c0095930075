# SPDX-License-Identifier: Apache-2.0
"""Checked reads are remembered until their files change."""

import gzip
import json
import os
import time

import pytest
from msgspec.structs import astuple

from factories.fastq_files import GOOD, packed, text, write
from firsttouch.genomics import reads as module
from firsttouch.genomics.fastq import inspect
from firsttouch.genomics.reads import BatchRule, recall, remember

RULE = BatchRule(bases=50)


@pytest.fixture
def pair(tmp_path, monkeypatch):
    """Two files of reads, old enough to be remembered."""
    monkeypatch.setattr(module, "_SETTLED_SECONDS", 0)
    return [write(tmp_path / f"{mate}.fq", text(GOOD * 100)) for mate in (1, 2)]


def facts(reads):
    index = reads.batches
    marks = [row.tolist() for row in (index.records, *index.offsets)]
    layouts = [astuple(layout) for layout in reads.layouts]
    return reads.files, reads.records, reads.bases, reads.batch_bases, reads.mates, layouts, marks


def test_a_check_is_remembered(pair):
    checked = inspect(pair, RULE)
    assert recall(pair, RULE) is None
    remember(checked)
    again = recall(pair, RULE)
    assert facts(again) == facts(checked)
    assert (again.batches.count, again.batches.stride, again.batches.rule) == (checked.batches.count, 1, RULE)
    assert recall(pair, BatchRule(bases=60)) is None
    assert recall(pair[:1], RULE) is None
    assert recall(pair[::-1], RULE) is None


def test_changed_reads_are_checked_again(pair):
    remember(inspect(pair, RULE))
    state = pair[1].stat()
    pair[1].write_bytes(pair[1].read_bytes().replace(b"A", b"C"))
    os.utime(pair[1], ns=(state.st_atime_ns, state.st_mtime_ns))
    assert recall(pair, RULE) is None


def test_another_version_checks_again(pair, monkeypatch):
    remember(inspect(pair, RULE))
    monkeypatch.setattr(module, "__version__", "other")
    assert recall(pair, RULE) is None


@pytest.mark.parametrize("damage", [b"", b"{}", b"[]", b"\xff"])
def test_a_damaged_note_is_ignored(pair, damage):
    remember(inspect(pair, RULE))
    (note,) = pair[0].parent.glob(".checked-*.json")
    note.write_bytes(damage)
    assert recall(pair, RULE) is None


def test_what_is_not_remembered(tmp_path, monkeypatch):
    young = write(tmp_path / "young.fq", text(GOOD))
    remember(inspect([young]))
    monkeypatch.setattr(time, "time_ns", lambda: young.stat().st_ctime_ns + 10**10)
    interleaved = write(tmp_path / "pairs.fq", text(GOOD[:1] * 2))
    remember(inspect([interleaved], interleaved=True))
    packed = tmp_path / "r.fq.gz"
    packed.write_bytes(gzip.compress(young.read_bytes()))
    remember(inspect([packed]))
    assert not list(tmp_path.glob(".checked-*"))
    remember(inspect([young]))
    assert recall([young], BatchRule()) is not None


# ----------------------------------------------------------------------
# ``firsttouch data reads``


def test_the_command_checks(tmp_path, run_cli):
    first = write(tmp_path / "1.fq", text(GOOD, "\r\n"))
    second = write(tmp_path / "2.fq", packed(text(GOOD)[:-1]))
    status, out, _ = run_cli("data", "reads", first, second, "--batch-bases", 10, "--json")
    assert status == 0
    assert json.loads(out) == {
        "files": [
            {"file": str(first), "layout": ["CR LF"]},
            {"file": str(second), "layout": ["gzip", "no newline at the end"]},
        ],
        "paired": True,
        "interleaved": False,
        "records": 3,
        "bases": 14,
        "batches": 2,
        "as_is": False,
    }
    status, out, _ = run_cli("data", "reads", first, "--batch-bases", 10)
    assert status == 0
    assert out.splitlines() == ["reads    3", "bases    7", "batches  1", f"{first}: CR LF"]
    status, out, err = run_cli("data", "reads", write(tmp_path / "bad.fq", b">s\nACGT\n"))
    assert (status, out) == (2, "")
    assert "bad.fq:1: record 1 begins without @: this is FASTA" in err
