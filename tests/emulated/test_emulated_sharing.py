# SPDX-License-Identifier: Apache-2.0
"""Runs at once on a host of eight PUs have separate PUs while there are free ones, even if runs are killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from firsttouch.datasets.fetch import get

from .guest import Guest

INSIDE = Path(__file__).with_name("sharing_inside.py")
READS = 32


@pytest.mark.parametrize("guest", ["small"], indirect=True)
def test_runs_at_once_share_no_pu_while_there_are_free_ones(guest: Guest) -> None:
    data = get("lambda")
    prefix, reads = guest.shared / "of-runs", guest.shared / "of-runs.fq"
    reads.write_text("".join(data.reads[0].read_text().splitlines(keepends=True)[: 4 * READS]))
    subprocess.run(["bwa", "index", "-p", prefix, data.reference], check=True, capture_output=True)
    done = guest.run([sys.executable, INSIDE, prefix, reads], timeout=900, check=True)
    document = json.loads(done.text)
    two, four, eight, after_kills = document["claims"]
    assert [len(pus) for pus in (two, four, eight, after_kills)] == [2, 4, 8, 3]
    for claims in (two, four, after_kills):
        pus = [pu for claim in claims for pu in claim]
        assert len(pus) == len(set(pus)) == 2 * len(claims), claims
    assert {pu for claim in eight for pu in claim} == set(range(8))
    assert all("are shared with process" in text for text in document["sharing"])
    assert [result["status"] for result in document["results"]] == [0] * 3, document["results"]
    assert len({tuple(result["alignments"]) for result in document["results"]}) == 1
    assert document["left"] == []
