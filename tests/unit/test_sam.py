# SPDX-License-Identifier: Apache-2.0
"""SAM of several instances: joined in input order under one header, summed up, and nonsense refused."""

import hashlib
import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firsttouch.errors import RunFailed
from firsttouch.genomics import sam, sam_stream
from firsttouch.genomics.sam_stream import SamTail

HEADER = ["@HD\tVN:1.6", "@SQ\tSN:chr1\tLN:9", "@SQ\tSN:chr2\tLN:7"]
EASY = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
PRIMARY = 0x900


def line(name, flag, tail=""):
    return f"r{name}\t{flag}\tchr1\t1\t60\t4M\t*\t0\t0\tACGT\tIIII{tail}"


def part(folder, name, header, records, end="\n"):
    file = folder / f"{name}.sam"
    file.write_text("\n".join([*header, *records]) + end)
    return file


def joined(folder, parts, runs):
    """Read and join parts; return what was read of them, the pieces and the text."""
    tails = [read(p, [records for _, records in run]) for p, run in zip(parts, runs, strict=True)]
    numbered = [
        zip((number for number, _ in run), tail.parts, strict=True) for run, tail in zip(runs, tails, strict=True)
    ]
    pieces = [piece for _, piece in sorted(itertools.chain(*numbered), key=lambda pair: pair[0])]
    out = folder / "out.sam"
    with out.open("wb") as stream:
        sam.concatenate([sam.ByteRange(parts[0], 0, len(tails[0].header)), *pieces], stream.fileno())
    return tails, pieces, out.read_text()


def read(file, shares=()):
    """Return the tail of a finished file with its parts, none if they are not all of it."""
    with SamTail(file) as tail:
        for records in shares:
            tail.want(records)
        parts = tail.look(ended=True)
    tail.parts = parts if tail.has_all else []
    return tail


@pytest.fixture(params=[64, 1 << 22], ids=["small-blocks", "large-blocks"])
def block(request, monkeypatch):
    """Sets the size of the blocks that files are read in."""
    monkeypatch.setattr(sam_stream, "BLOCK_BYTES", request.param)
    return request.param


reads = st.lists(st.lists(st.sampled_from([0x100, 0x800, 0x904]), max_size=3), max_size=12)


@given(
    extras=reads,
    cuts=st.lists(st.integers(0, 12), max_size=4),
    names=st.sampled_from((1, 2, 99)),
    rng=st.randoms(use_true_random=False),
)
@EASY
def test_pieces_join_to_the_whole(tmp_path, block, *, extras, cuts, names, rng):
    """Any number of further records behind each read's primary one, dealt in any order to some instances.

    Reads may have the same name, also where one share ends and the next begins.
    """
    records = [
        [line(n % names, rng.choice([0, 4, 16, 99])), *(line(n % names, flag) for flag in more)]
        for n, more in enumerate(extras)
    ]
    cuts = [0, *sorted(min(c, len(records)) for c in cuts), len(records)]
    shares = [records[a:b] for a, b in itertools.pairwise(cuts)]
    runs = [[], []]
    texts = [[], []]
    for number, share in enumerate(shares):
        to = rng.randrange(2)
        runs[to].append((number, len(share)))
        texts[to] += itertools.chain(*share)
    parts = [part(tmp_path, n, [*HEADER, f"@PG\tID:bwa\tCL:part {n}"], t) for n, t in enumerate(texts)]
    tails, pieces, text = joined(tmp_path, parts, runs)
    whole = list(itertools.chain(*records))
    assert text.splitlines() == [*HEADER, "@PG\tID:bwa\tCL:part 0", *whole]
    flags = [int(li.split("\t")[1]) for li in whole]
    assert sum(tail.primary for tail in tails) == sum(not f & PRIMARY for f in flags) == len(records)
    assert sum(tail.mapped for tail in tails) == sum(not f & (PRIMARY | 4) for f in flags)
    assert (
        sam.checksums(pieces, settle=1).exact
        == hashlib.sha256("".join(r + "\n" for r in whole).encode()).hexdigest()
    )


def test_the_checksums_of_a_reference_hold_for_the_same_alignments_only(tmp_path):
    line = "r\t0\tc\t1\t60\t4M\t*\t0\t0\tACGT\tFFFF\tAS:i:4"
    pieces = []
    for name, text in (("same", line), ("other", line.replace("ACGT", "AGGT"))):
        file = tmp_path / name
        file.write_text(f"{text}\n")
        pieces.append(sam.ByteRange(file, 0, file.stat().st_size))
    same, other = ([piece] for piece in pieces)
    settled = sam.checksums(same, settle=1)
    assert settled.common != settled.exact
    reference = sam.Checksums(settled.exact, "as the reference has it")
    assert sam.checksums(same, settle=1, reference=reference) == reference
    assert sam.checksums(other, settle=1, reference=reference) == sam.checksums(other, settle=1)
    assert sam.checksums(same, settle=None, reference=reference).common == settled.exact


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (b"@PG\tID:bwa\tPN:bwa\tVN:1\tCL:bwa /dev/fd/3\tDS:x\n", b"@PG\tID:bwa\tPN:bwa\tVN:1"),
        (b"@PG\tID:a\tCL:a\n@PG\tID:b\tPP:a\tCL:b", b"@PG\tID:a\tCL:a\n@PG\tID:b\tPP:a"),
        (b"", b"@PG\tID:firsttouch\tPN:firsttouch"),
    ],
)
def test_a_header_says_what_the_user_ran(header, expected):
    before, after = b"@SQ\tSN:a\tLN:1\n", b"@CO\tafter\n" if header.endswith(b"\n") else b""
    described = sam.describe_program(before + header + after, "run '\t' \n\udcff", "2 x 1")
    assert described == before + expected + b"\tCL:run ' ' ?\tDS:2 x 1\n" + after
    assert sam.describe_program(header, "", "2 x 1") == expected + b"\tDS:2 x 1\n"


def test_a_header_has_one_first_line_and_keeps_the_users():
    header = b"@SQ\tSN:a\tLN:1\n@HD\tVN:1.6\tGO:query\n@RG\tID:x\n@HD\tVN:1.0\n@PG\tID:bwa\tPN:bwa\n@CO\ttext\n"
    described = sam.describe_program(header, "bwa mem", "")
    assert described.splitlines() == [
        *(b"@HD\tVN:1.6\tGO:query", b"@SQ\tSN:a\tLN:1", b"@RG\tID:x", b"@PG\tID:bwa\tPN:bwa\tCL:bwa mem"),
        b"@CO\ttext",
    ]


def test_headers_of_instances_agree():
    header = b"@SQ\tSN:a\tLN:1\n@RG\tID:x\n@PG\tID:0\n"
    sam.check_same({1: header, 0: header.replace(b"ID:0", b"ID:1")})
    for other in (b"", b"@SQ\tSN:x\tLN:1\n" + header, b"@RG\tID:x\n@SQ\tSN:a\tLN:1\n", header + b"@RG\tID:y\n"):
        for headers in ({0: header, 1: other}, {0: other, 1: header}):
            with pytest.raises(RunFailed, match="0 and 1"):
                sam.check_same(headers)
    for other, names in ((b"@RG\tID:y", "'@RG\tID:x' and '@RG\tID:y'"), (b"", "'@RG\tID:x' and 'no such line'")):
        with pytest.raises(RunFailed) as error:
            sam.check_same({0: header, 3: header, 2: header.replace(b"@RG\tID:x", other)})
        assert str(error.value) == f"the headers of instances 0 and 2 differ: {names}".replace("\t", "\\t")


@pytest.mark.parametrize("length", [1, 30, 31, 32, 254, 1000])
@pytest.mark.parametrize("tags", [0, 246, 247, 255, 256, 600])
def test_names_of_any_length_and_as_many_tags(tmp_path, block, length, tags):
    """Of 256 tabs the narrowest integer says 0."""
    records = [line("n" * length, flag, "\tXX:i:1" * tags) for flag in (0, 4, 65535)]
    file = part(tmp_path, "a", HEADER, [line(0, 0), *records, line(1, 4)])
    tail = read(file)
    assert (tail.primary, tail.mapped) == (4, 2)


def test_too_few_or_too_many_records_are_not_all(tmp_path):
    file = part(tmp_path, "a", HEADER, [line(0, 0), line(1, 0)])
    assert read(file, [1, 1]).has_all
    assert not read(file, [1, 2]).has_all
    assert not read(file, [1]).has_all
    assert not read(part(tmp_path, "b", HEADER, []), [1]).has_all
    empty = read(part(tmp_path, "c", HEADER, []), [0])
    assert [piece.end for piece in empty.parts] == [len(empty.header)]


@pytest.mark.parametrize(
    ("records", "end", "at"),
    [
        (["garbage"], "\n", 4),
        ([line(0, 0), "", line(1, 0)], "\n", 5),
        ([line(0, "1x")], "\n", 4),
        ([line(0, 1234567)], "\n", 4),
        ([line(0, 0), line(1, 0)], "", 5),
        ([line(0, 0), "r1\t0\n" + line(1, 0)], "\n", 5),
        ([line(0, 0), "n" * 2000, line(1, 0)], "\n", 5),
        ([line(0, 0), "r1\t0\tchr1\t1\t60"], "\n", 5),
    ],
)
def test_what_is_no_sam_is_named(tmp_path, block, records, end, at):
    file = part(tmp_path, "a", HEADER, records, end)
    with pytest.raises(RunFailed, match=rf"^{file}:{at}: "):
        read(file)


def kept(*lines, mates=1):
    return list(sam.unambiguous_fields(lines, mates))


SURE = b"r1\t99\tchr1\t7\t60\t4M\t=\t99\t100\tACGT\tIIII\tAS:i:4\tXA:Z:x\n"
TIE = b"r1\t0\tchr1\t7\t0\t4M\t*\t0\t0\tACGT\tIIII\tAS:i:4\n"


def test_what_settled_leaves_out():
    other = b"r1\t65\tchr1\t7\t60\t4M\t=\t44\t200\tACGT\tIIII\tAS:i:4\n"
    assert kept(SURE) == kept(other) != kept(SURE.replace(b"\t7\t", b"\t8\t"))
    for own in (b"ACGT", b"IIII", b"AS:i:4"):
        assert kept(SURE) != kept(SURE.replace(own, own[:-1] + b"N"))
    assert kept(SURE) == kept(SURE.replace(b"XA:Z:x", b"XA:Z:y"))
    elsewhere = b"r1\t16\tchr2\t9\t0\t4M\t*\t0\t0\tACGT\tIIII\tAS:i:4\n"
    assert kept(TIE) == kept(elsewhere) != kept(TIE.replace(b"AS:i:4", b"AS:i:5"))
    # bwa sampe lends a read its mate's quality: SM is the read's own.
    lent = TIE.replace(b"\t0\t4M", b"\t25\t4M").replace(b"AS:i:4", b"SM:i:0\tAM:i:0")
    assert (
        kept(lent) == kept(lent.replace(b"chr1\t7", b"chr2\t9")) != kept(lent.replace(b"\t0\tchr1", b"\t4\tchr1"))
    )


def test_scores_only_leaves_out_qualities_and_positions_of_all_reads():
    def scored(line):
        return list(sam.unambiguous_fields([line], 1, scores_only=True))

    elsewhere = SURE.replace(b"\tchr1\t7\t60\t", b"\tchr2\t8\t2\t")
    assert scored(SURE) == scored(elsewhere) != scored(elsewhere.replace(b"AS:i:4", b"AS:i:3"))
    assert scored(SURE) != scored(SURE.replace(b"\t99\t", b"\t4\t")) != scored(SURE.replace(b"r1", b"r2"))


def test_a_pair_is_settled_as_a_whole():
    first = SURE
    mate = b"r1\t147\tchr1\t99\t0\t4M\t=\t7\t-96\tACGT\tIIII\tAS:i:3\n"
    # Where the mate's place is a choice, the read's own may be one as well: they score 7 together anywhere.
    moved = first.replace(b"\t7\t60", b"\t8\t20"), mate.replace(b"\t99\t0", b"\t44\t0")
    assert kept(first, mate, mates=2) == kept(*moved, mates=2)
    shared = first.replace(b"AS:i:4", b"AS:i:3"), mate.replace(b"AS:i:3", b"AS:i:4")
    assert kept(*shared, mates=2) == kept(first, mate, mates=2)
    assert kept(first.replace(b"AS:i:4", b"AS:i:5"), mate, mates=2) != kept(first, mate, mates=2)
    sure = mate.replace(b"\t99\t0", b"\t99\t9")
    assert kept(first, sure, mates=2) != kept(first.replace(b"\t7\t", b"\t8\t"), sure, mates=2)


def test_further_records_count_where_they_are_sure():
    further = SURE.replace(b"\t99\tchr1\t7", b"\t2147\tchr2\t3")
    doubtful = further.replace(b"\t60\t", b"\t0\t")
    assert kept(SURE, doubtful) == kept(SURE) != kept(SURE, further)
    assert kept(TIE, further) == kept(TIE)


def test_reads_of_one_name_stay_apart():
    assert kept(SURE, SURE) == kept(SURE) * 2
    assert kept(SURE, TIE, mates=2) * 2 == kept(SURE, TIE, SURE, TIE, mates=2)
