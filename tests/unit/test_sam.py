# SPDX-License-Identifier: Apache-2.0
"""SAM of several instances: joined in order, under one header, summed up, and nonsense refused."""

import hashlib
import io
import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firsttouch import sam
from firsttouch.errors import RunFailed

pytestmark = pytest.mark.unit

HEADER = ["@HD\tVN:1.6", "@SQ\tSN:chr1\tLN:9", "@SQ\tSN:chr2\tLN:7"]


def line(number, flag):
    return f"r{number}\t{flag}\tchr1\t1\t60\t4M\t*\t0\t0\tACGT\tIIII"


def part(folder, name, header, records, end="\n"):
    file = folder / f"{name}.sam"
    file.write_text("\n".join([*header, *records]) + end)
    return file


@given(st.lists(st.integers(0, 0xFFF), max_size=20), st.lists(st.integers(0, 20), max_size=4))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_parts_join_to_the_whole(tmp_path, flags, cuts):
    records = [line(n, f) for n, f in enumerate(flags)]
    cuts = [0, *sorted(min(c, len(records)) for c in cuts), len(records)]
    parts = [
        part(tmp_path, n, [*HEADER, f"@PG\tID:bwa\tCL:part {n}"], records[a:b])
        for n, (a, b) in enumerate(itertools.pairwise(cuts))
    ]
    out = io.BytesIO()
    found = sam.join(parts, out)
    text = out.getvalue().decode().splitlines()
    assert text == [*HEADER, "@PG\tID:bwa\tCL:part 0", *records]
    assert found.primary == sum(not f & 0x900 for f in flags)
    assert found.mapped == sum(not f & 0x904 for f in flags)
    assert found.sha256 == hashlib.sha256("".join(r + "\n" for r in records).encode()).hexdigest()
    assert sam.join(parts, None) == found


def test_nothing_aligned():
    assert sam.Alignments(0, 0, "").mapped_fraction == 0.0
    assert sam.Alignments(4, 3, "").mapped_fraction == 0.75


@pytest.mark.parametrize(
    ("records", "end", "at"),
    [
        (["garbage"], "\n", 4),
        ([line(0, 0), "", line(1, 0)], "\n", 5),
        ([line(0, "x")], "\n", 4),
        ([line(0, -1)], "\n", 4),
        ([line(0, "")], "\n", 4),
        ([line(0, 0), line(1, 0)], "", 5),
        ([line(0, 0), "r1\t0"], "\n", 5),
        ([line(0, 0), "r1\t0\tchr1\t1\t60"], "\n", 5),
    ],
)
def test_what_is_no_sam_is_named(tmp_path, records, end, at):
    file = part(tmp_path, "a", HEADER, records, end)
    with pytest.raises(RunFailed, match=rf"^{file}:{at}: not a SAM record"):
        sam.join([file], None)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("other", [HEADER[:2], [HEADER[0]], [], [*HEADER, "@SQ\tSN:x\tLN:1"], HEADER[::-1]])
def test_parts_of_different_references(tmp_path, other, first):
    parts = [part(tmp_path, "a", HEADER, [line(0, 0)]), part(tmp_path, "b", other, [line(1, 0)])]
    if not first:
        parts.reverse()
    with pytest.raises(RunFailed, match="aligned to other references than"):
        sam.join(parts, None)


def test_a_read_whose_name_begins_with_an_at(tmp_path):
    """FASTQ allows it, and bwa passes it on: still a record, no header."""
    name = "@name\t0\tchr1\t1\t60\t4M\t*\t0\t0\tACGT\tIIII"
    out = io.BytesIO()
    found = sam.join([part(tmp_path, "a", HEADER, [name]), part(tmp_path, "b", HEADER, [name])], out)
    assert found.primary == 2
    assert out.getvalue().decode().splitlines() == [*HEADER, name, name]
