# SPDX-License-Identifier: Apache-2.0
"""SAM files that grow: parts are found as soon as they are complete, and the order of the reads is restored."""

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firsttouch.errors import RunFailed
from firsttouch.genomics import sam_stream
from firsttouch.genomics.sam_stream import OrderedTail, SamTail

HEADER = b"@HD\tVN:1.6\n@SQ\tSN:chr1\tLN:9\n"
EASY = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def line(name, flag, tail=""):
    return f"r{name}\t{flag}\tchr1\t1\t60\t4M\t*\t0\t0\tACGT\tIIII{tail}\n".encode()


def text_of(part):
    return part.file.read_bytes()[part.start : part.end]


@pytest.fixture(params=[64, 1 << 20], ids=["small-blocks", "large-blocks"])
def block(request, monkeypatch):
    """Sets the size of the blocks that files are read in."""
    monkeypatch.setattr(sam_stream, "BLOCK_BYTES", request.param)


def grow(file, data, moments, look):
    """Write *data* to *file* in pieces that end at *moments*, and look after each; return the sizes then."""
    sizes = []
    with file.open("ab", buffering=0) as out:
        for begin, end in itertools.pairwise([0, *sorted(m % (len(data) + 1) for m in moments), len(data)]):
            out.write(data[begin:end])
            look()
            sizes.append(end)
    return sizes


@given(
    reads=st.lists(st.lists(st.sampled_from([0x100, 0x800, 0x904]), max_size=3), max_size=12),
    cuts=st.lists(st.integers(0, 12), max_size=4),
    names=st.sampled_from((1, 2, 99)),
    moments=st.lists(st.integers(0, 1 << 30), max_size=8),
    header=st.sampled_from((HEADER, b"")),
    rng=st.randoms(use_true_random=False),
)
@EASY
def test_parts_of_a_growing_file(tmp_path, block, *, reads, cuts, names, moments, header, rng):
    """Parts may be empty; reads may have the same name, also where one part ends and the next begins."""
    records = [
        [line(n % names, rng.choice([0, 4, 16, 99])), *(line(n % names, flag) for flag in more)]
        for n, more in enumerate(reads)
    ]
    cuts = [0, *sorted(min(cut, len(records)) for cut in cuts), len(records)]
    parts = [records[begin:end] for begin, end in itertools.pairwise(cuts)]
    texts = [b"".join(itertools.chain(*part)) for part in parts]
    data = header + b"".join(texts)
    file = tmp_path / "out.sam"
    file.write_bytes(b"")
    with SamTail(file) as tail:
        for part in parts:
            tail.want(len(part))
        looks = []
        sizes = grow(file, data, moments, lambda: looks.append(tail.look()))
        # A part is complete once the line behind its last record is there.
        ends = [len(header) + size for size in itertools.accumulate(map(len, texts))]
        certain = [data.find(b"\n", end) + 1 or len(data) + 1 for end in ends]
        for number, size in enumerate(sizes):
            assert sum(map(len, looks[: number + 1])) >= sum(needed <= size for needed in certain)
        ranges = [*itertools.chain(*looks), *tail.finish()]
        assert [text_of(part) for part in ranges] == texts
        assert tail.header == header
        assert (tail.primary, tail.size) == (len(records), len(data))
        flags = [int(line.split(b"\t")[1]) for line in itertools.chain.from_iterable(records)]
        assert tail.mapped == sum(not flag & 0x904 for flag in flags)


@given(
    templates=st.lists(st.lists(st.sampled_from([0x100, 0x800]), max_size=2), max_size=10),
    cuts=st.lists(st.integers(0, 10), max_size=3),
    names=st.sampled_from((1, 99)),
    mates=st.sampled_from((1, 2)),
    apart=st.booleans(),
    moments=st.lists(st.integers(0, 1 << 30), max_size=8),
    rng=st.randoms(use_true_random=False),
)
@EASY
def test_the_order_of_the_reads_is_restored(
    tmp_path, block, *, templates, cuts, names, mates, apart, moments, rng
):
    """Templates come in any order, mates in any order or far apart, and with /1 and /2 or without."""
    wanted, written = [], []
    for number, more in enumerate(templates):
        lines = []
        for mate in range(mates):
            suffix = f"/{mate + 1}" if number % 2 else ""
            flag = (0x40, 0x80)[mate] if mates == 2 else 0
            name, tag = f"{number % names}{suffix}", f"\tXX:i:{number if names > 1 else 0}"
            lines.append([line(name, flag, tag), *(line(name, flag | extra, tag) for extra in more)])
        wanted.append(b"".join(itertools.chain(*lines)))
        rng.shuffle(lines)
        written += [b"".join(of_mate) for of_mate in lines] if apart else [b"".join(itertools.chain(*lines))]
    if names > 1:
        rng.shuffle(written)
    cuts = [0, *sorted(min(cut, len(wanted)) for cut in cuts), len(wanted)]
    file, restored = tmp_path / "out.sam", tmp_path / "restored.sam"
    file.write_bytes(b"")
    with OrderedTail(file, restored, mates) as tail:
        for begin, end in itertools.pairwise(cuts):
            tail.want(f"r{number % names}".encode() for number in range(begin, end))
        looks = []
        grow(file, HEADER + b"".join(written), moments, lambda: looks.append(tail.look()))
        ranges = [*itertools.chain(*looks), *tail.finish()]
        assert tail.primary == len(templates) * mates
    texts = [b"".join(wanted[begin:end]) for begin, end in itertools.pairwise(cuts)]
    assert [text_of(part) for part in ranges] == texts
    assert restored.read_bytes() == HEADER + b"".join(texts)


def test_parts_may_be_wanted_later_and_lines_be_long(tmp_path, block):
    file = tmp_path / "out.sam"
    long = line(0, 0, "\tXX:Z:" + "x" * 3_000_000)
    file.write_bytes(HEADER + long)
    with SamTail(file) as tail, file.open("ab", buffering=0) as out:
        assert tail.header is None
        tail.want(0)
        tail.want(1)
        assert [text_of(part) for part in tail.look()] == [b""]
        assert (tail.header, tail.primary) == (HEADER, 1)
        tail.want(1)
        out.write(line(1, 4)[:-1])
        assert tail.look() == []
        out.write(b"\n")
        assert [text_of(part) for part in tail.look()] == [long]
        assert [text_of(part) for part in tail.finish()] == [line(1, 4)]


#: Pairs of the records that Bowtie 2 writes: both, mate 2 first, and one for a pair whose mate 2 is empty.
BOTH, SECOND_FIRST, LONE, LONE_UNMAPPED = (99, 147), (153, 101), (0,), (4,)


@pytest.mark.parametrize("one_record", [True, False])
def test_pairs_with_an_empty_mate_have_one_record_or_two(tmp_path, block, one_record):
    parts = [[BOTH, BOTH], [BOTH, LONE, SECOND_FIRST], [LONE_UNMAPPED], [LONE, LONE, BOTH], [BOTH]]
    if not one_record:
        parts = [[pair if len(pair) == 2 else (77, 141) for pair in part] for part in parts]
    names = itertools.count()
    texts = [
        b"".join(line(name, flag) for pair in part for name in [next(names)] for flag in pair) for part in parts
    ]
    file = tmp_path / "x.sam"
    file.write_bytes(HEADER + b"".join(texts))
    with SamTail(file) as tail:
        for part, empty in zip(parts, (0, 1, 1, 2, 0), strict=True):
            tail.want(2 * len(part), empty)
        ranges = [*tail.look(), *tail.finish()]
    assert [text_of(part) for part in ranges] == texts
    with SamTail(file) as tail:
        tail.want(2 * sum(map(len, parts)), 3)
        tail.look(ended=True)
        assert tail.has_all != one_record


@pytest.mark.parametrize("flags", [(0, 0), (99,), (0, 99)])
def test_a_record_that_lacks_is_not_taken_for_an_empty_mate(tmp_path, block, flags):
    file = tmp_path / "x.sam"
    file.write_bytes(HEADER + b"".join(line(n, flag) for n, flag in enumerate(flags)))
    with SamTail(file) as tail:
        tail.want(4, 1)
        with pytest.raises(RunFailed, match=f"has {len(flags)} of 4 reads"):
            tail.finish()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (HEADER + line(0, 0) + b"garbage\n", ":4: not a SAM record: b'garbage"),
        (HEADER + line(0, 0) + b"r1\t0", ":4: not a SAM record, the line has no end: b'r1"),
        (HEADER[:-3], ":2: not a SAM record, the line has no end: b'@SQ"),
        (HEADER + line(0, 0), ": has 1 of 2 reads"),
        (HEADER + line(0, 0) + line(1, 0) + line(2, 0), ": has 3 of 2 reads"),
        (HEADER + line(0, 0) + line(1, 0) + line(2, 0x100), ": has records of reads that it was not given"),
        (b"", ": has 0 of 2 reads"),
    ],
)
def test_a_file_that_is_not_what_was_wanted(tmp_path, block, text, reason):
    file = tmp_path / "out.sam"
    file.write_bytes(text)
    with SamTail(file) as tail:
        tail.want(2)
        with pytest.raises(RunFailed) as error:
            tail.finish()
    assert str(error.value).startswith(f"{file}{reason}")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (line(0, 0), "read r1 has no record, or too few"),
        (line(0, 0) + line(1, 0x100), "read r1 has no record, or too few"),
        (line(0, 0) + line(1, 0) + line(2, 0), "has records of reads that it was not given"),
    ],
)
def test_templates_that_are_not_those_wanted(tmp_path, block, text, reason):
    file = tmp_path / "out.sam"
    file.write_bytes(HEADER + text)
    with OrderedTail(file, tmp_path / "restored", 1) as tail:
        tail.want([b"r0", b"r1"])
        with pytest.raises(RunFailed, match=reason):
            tail.finish()
