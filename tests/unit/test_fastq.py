# SPDX-License-Identifier: Apache-2.0
"""FASTQ: checked in one pass, counted, and divided at batches; the wrong is named by record and line."""

import os
import re
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factories.fastq_files import BATCHES, GOOD, SIZES, batch_starts, common, fastq, layout, packed, text, write
from firsttouch.errors import BadInput
from firsttouch.genomics import fastq as module
from firsttouch.genomics.division import parts_between
from firsttouch.genomics.fastq import inspect
from firsttouch.genomics.reads import is_for_no_aligner


@pytest.fixture
def blocks_of(monkeypatch):
    """Returns a function that sets how large blocks are, and the room before them."""

    def change(size):
        monkeypatch.setattr(module, "BLOCK", size[0])
        monkeypatch.setattr(module, "HEAD", size[1])

    return change


@given(fastq(), layout(), SIZES)
@common(40)
def test_records_and_bases_are_counted(tmp_path, blocks_of, records, written, size):
    blocks_of(size)
    data = written(records[0])
    reads = inspect([write(tmp_path / "r.fq", data)])
    assert reads.records == len(records[0])
    assert reads.bases == sum(len(r[1]) for r in records[0])
    assert reads.as_is == (data == text(records[0]))
    parts = parts_between(reads, range(len(records[0]) + 1))
    begins = [part.begins[0] for part in parts]
    assert [re.match(rb"[^\r\n]*", data[b:])[0].decode() for b in begins] == [r[0] for r in records[0]]


@given(
    records=fastq(mates=2),
    batch=BATCHES,
    newline=st.sampled_from(("\n", "\r\n")),
    size=SIZES,
    interleaved=st.booleans(),
)
@common(40)
def test_parts_begin_where_batches_begin(tmp_path, blocks_of, *, records, batch, newline, size, interleaved):
    blocks_of(size)
    if interleaved:
        alternating = [r for pair in zip(*records, strict=True) for r in pair]
        files = [write(tmp_path / "i.fq", text(alternating, newline))]
    else:
        files = [write(tmp_path / f"{n}.fq", text(r, newline)) for n, r in enumerate(records)]
    reads = inspect(files, batch, interleaved=interleaved)
    sizes = [len(a[1]) + len(b[1]) for a, b in zip(*records, strict=True)]
    starts = batch_starts([(s, len(text([r]))) for s, r in zip(sizes, records[0], strict=True)], batch)
    assert (reads.records, reads.bases, reads.paired, reads.mates) == (len(sizes), sum(sizes), True, 2)
    assert reads.as_is is (not interleaved and newline == "\n")
    assert list(reads.batches.records) == [*starts, len(sizes)]
    assert reads.empty_mates == sum(not mate[1] for mate in records[1])
    parts = parts_between(reads, range(len(starts) + 1))
    assert [part.first for part in parts] == starts
    assert [part.end for part in parts] == [*starts[1:], len(sizes)]
    assert [part.ends for part in parts[:-1]] == [part.begins for part in parts[1:]]
    assert parts[-1].ends == tuple(file.stat().st_size for file in files)


@given(st.lists(st.tuples(*[st.integers(0, 50)] * 2), min_size=1, max_size=200), BATCHES, st.data())
@common(75)
def test_batches_do_not_depend_on_how_records_come(sizes, batch, data):
    indexer, at = module.BatchIndexer(batch, 1), 0
    while at < len(sizes):
        count = data.draw(st.integers(1, len(sizes) - at))
        here = np.arange(at, at + count)
        indexer.add(*np.array(sizes[at : at + count]).T, [10 * here])
        at += count
    index = indexer.index([10 * len(sizes)])
    assert list(index.records) == [*batch_starts(sizes, batch), len(sizes)]
    assert list(index.offsets[0]) == [10 * r for r in index.records]


BAD = [
    (["b", "AC", "+", "II"], "begins without @", 5),
    ([">b", "AC", "+", "II"], "begins without @: this is FASTA", 5),
    (["@b", "AC", "-", "II"], r"has no \+ line \(is it truncated\?\)", 7),
    (["@b", "AC", "+", "I"], r"has 2 bases but 1 qualities \(is it truncated\?\)", 8),
    (["@b", "AC\nGT", "+", "II"], r"has no \+ line .*several lines", 7),
    (["@", "AC", "+", "II"], "has no name", 5),
    (["@@b", "AC", "+", "II"], "has a name that begins with @", 5),
    (["@b" + "x" * 254, "AC", "+", "II"], "has a name of 255 bytes, SAM's limit is 254", 5),
    (["@b\x00x", "AC", "+", "II"], "has the byte 0x00 in the line of its name", 5),
    (["@b\rx", "AC", "+", "II"], "has the byte 0x0d in the line of its name", 5),
    (["\0" * 5000, "AC", "+", "II"], "begins without @", 5),
    (["@b c\x1b", "AC", "+", "II"], "has the byte 0x1b in the line of its name", 5),
    (["@b", "A\0", "+", "II"], "has the byte 0x00 among its bases", 6),
    (["@b", "A!", "+", "II"], "has '!' among its bases", 6),
    (["@b", "AC", "+", "I "], "has the byte 0x20 among its qualities", 8),
    (["@b", "AC", "+", "\xe9"], "has the byte 0xc3 among its qualities", 8),
]


@pytest.mark.parametrize(("record", "reason", "at"), BAD)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("size", [(5, 0), (1 << 21, 1 << 14)])
def test_the_error_names_file_record_and_line(tmp_path, blocks_of, *, record, reason, at, newline, size):
    blocks_of(size)
    lines = [line.replace("\n", newline) for line in record]
    file = write(tmp_path / "r.fq", text([GOOD[0], lines, GOOD[2]], newline))
    with pytest.raises(BadInput, match=rf"^{file}:{at}: record 2 {reason}"):
        inspect([file])


@pytest.mark.parametrize("size", [(3, 0), (1 << 21, 1 << 14)])
def test_truncated_at_any_byte(tmp_path, blocks_of, size):
    blocks_of(size)
    data = text(GOOD)
    ends = {len(text(GOOD[:n])) for n in range(4)}
    ends |= {e - 1 for e in ends if e}  # without the last newline nothing is missing
    for cut in range(len(data)):
        file = write(tmp_path / "r.fq", data[:cut])
        if cut in ends and cut > 0:
            assert inspect([file]).records == data[: cut + 1].count(b"+")
        else:
            with pytest.raises(BadInput, match=rf"^{file}: no reads|^{file}:\d+: record \d "):
                inspect([file])


@pytest.mark.parametrize("blank", [b"\n", b"\r\n\r\n", b"\n" * 4, b"\n" * 30, b" \n\t\n"])
def test_blank_lines_are_dropped_at_the_end_only(tmp_path, blocks_of, blank):
    for size in ((3, 0), (1 << 21, 1 << 14)):
        blocks_of(size)
        reads = inspect([write(tmp_path / "r.fq", text(GOOD) + blank)])
        assert (reads.records, reads.as_is, reads.batches.offsets[0][-1]) == (3, False, len(text(GOOD)))
        file = write(tmp_path / "r.fq", text(GOOD) + blank + text(GOOD))
        with pytest.raises(BadInput, match=rf"^{file}:13: record 4 .*@"):
            inspect([file])


@pytest.mark.parametrize("bases", [1, 100_000, 5_000_000])
def test_reads_of_any_length(tmp_path, bases):
    records = [["@r" + "x" * n, "A" * bases, "+", "@" * bases] for n in range(3)]
    reads = inspect([write(tmp_path / "r.fq", text(records))])
    assert (reads.records, reads.bases) == (3, 3 * bases)


def test_what_never_ends_is_no_fastq(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LONGEST", 1 << 22)
    file = write(tmp_path / "r.fq", text(GOOD) + b"@" + bytes(10 << 20))
    with pytest.raises(BadInput, match=rf"^{file}:13: record 4 .*4 MiB"):
        inspect([file])


FORMS = {
    b"BZh9": "is compressed, but not with gzip: decompress it with bzip2",
    b"\xfd7zXZ\0": "is compressed, but not with gzip: decompress it with xz",
    b"\x28\xb5\x2f\xfd": "is compressed, but not with gzip: decompress it with zstd",
    packed(b"BAM\1"): "is BAM: convert it with `samtools fastq`",
    b"CRAM\3": "is CRAM: convert it with `samtools fastq`",
}


@pytest.mark.parametrize("begin", FORMS)
def test_other_forms_are_refused(tmp_path, begin):
    file = write(tmp_path / "r.fq", begin + bytes(100))
    with pytest.raises(BadInput) as error:
        inspect([file])
    assert str(error.value) == f"{file}: {FORMS[begin]}"
    assert is_for_no_aligner(str(file)) == (begin[:2] not in {b"BZ", b"\xfd7"})


def test_a_fifo_is_not_opened_to_learn_its_form(tmp_path):
    """It would wait for the writer, which would lose its reader."""
    os.mkfifo(tmp_path / "fifo")
    assert not is_for_no_aligner(str(tmp_path / "fifo"))
    assert not is_for_no_aligner("-")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        *[("a", "a"), ("a/1", "a/2"), ("a/1 x", "a/2 y"), ("a 1:N:0", "a 2:N:0"), ("a\tx", "a"), ("a/1", "a")],
        *[("a/2", "a/1"), ("n" * 250 + "/1", "n" * 250 + "/2"), ("a/1 c", "a/2"), ("a", "a" + " " * 300)],
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_names_of_a_pair(tmp_path, first, second, newline):
    # Names of the same shape and of different ones are compared together.
    records = [[[f"@{n}", "A", "+", "I"], ["@same", "", "+", ""]] for n in (first, second)]
    files = [write(tmp_path / f"{i}.fq", text(r, newline)) for i, r in enumerate(records)]
    assert inspect(files).records == 2
    both = write(tmp_path / "i.fq", text([r for pair in zip(*records, strict=True) for r in pair], newline))
    assert inspect([both], interleaved=True).records == 2


def test_odd_bytes_that_sam_can_hold(tmp_path):
    names = ["b" + "x" * 253 + " comment" * 99, "\xe9", "b\tc:i:1", "b c\xe9", "b " + "x" * 400]
    records = [[f"@{n}", "AC.=NnRyacgtu", "+\x00 \xe9", "!~@+IIIIIIIII"] for n in names]
    for newline in ("\n", "\r\n"):
        assert inspect([write(tmp_path / "r.fq", text(records, newline))]).records == len(names)


@given(
    record=st.integers(0, 3),
    line=st.sampled_from((0, 1, 3)),
    place=st.integers(0, 20),
    byte=st.integers(0, 255).filter(lambda byte: byte not in b"\r\n"),
    size=SIZES,
)
@common(75)
def test_bytes_are_judged_alike_one_by_one_and_together(tmp_path, blocks_of, *, record, line, place, byte, size):
    """The check of many records at once and the check of single records agree."""
    blocks_of(size)
    records = [[f"@r{n} c", "ACGT" * n, "+", "I~!F" * n] for n in range(1, 5)]
    lines = [bytearray(part.encode()) for part in records[record]]
    place = min(place, len(lines[line]) - 1)
    lines[line][place] = byte
    data = text(records[:record]) + b"\n".join(lines) + b"\n" + text(records[record + 1 :])
    reason = module._fault(data.split(b"\n")[4 * record : 4 * record + 4])
    file = write(tmp_path / "r.fq", data)
    if reason is None:
        assert inspect([file]).records == 4
    else:
        with pytest.raises(BadInput, match=rf"^{file}:{4 * record + reason[1]}: record {record + 1} ") as caught:
            inspect([file])
        assert caught.value.reason == f"record {record + 1} {reason[0]}"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        *[("a", "b"), ("a/1", "b/2"), ("a", "ab"), ("ab", "a"), ("x1", "x2"), ("a/3", "a/4"), ("a/1x", "a/2x")],
        *[("n" * 250 + "1", "n" * 250 + "2"), ("a b", "c b"), ("/1", "/2x")],
    ],
)
def test_names_of_no_pair(tmp_path, first, second):
    records = [[["@same", "A", "+", "I"], [f"@{n}", "A", "+", "I"]] for n in (first, second)]
    files = [write(tmp_path / f"{i}.fq", text(r)) for i, r in enumerate(records)]
    names = rf"record 2: @{first.split()[0]} and @{second.split()[0]} are no pair"
    with pytest.raises(BadInput, match=rf"^{files[1]}:5: {names}"):
        inspect(files)
    both = write(tmp_path / "i.fq", text([r for pair in zip(*records, strict=True) for r in pair]))
    with pytest.raises(BadInput, match=rf"^{both}:13: {names.replace('2', '4', 1)}"):
        inspect([both], interleaved=True)


@given(fastq(mates=2), st.data(), SIZES)
@common(50)
def test_pairs_out_of_step_are_seen(tmp_path, blocks_of, records, data, size):
    blocks_of(size)
    place = data.draw(st.integers(0, len(records[1]) - 1))
    records[1][place][0] = "@other/2"
    files = [write(tmp_path / f"{n}.fq", text(r)) for n, r in enumerate(records)]
    with pytest.raises(BadInput, match=rf"^{files[1]}:{4 * place + 1}: record {place + 1}: "):
        inspect(files)


def test_memory_stays_small(tmp_path):
    """Of an input far larger than the blocks nothing is kept but the batch index."""
    file = tmp_path / "r.fq"
    records = text([[f"@r{n:07}", "ACGT" * 25, "+", "FFFF" * 25] for n in range(20_000)])
    with file.open("wb") as out:
        for _ in range(20):
            out.write(records)
    tracemalloc.start()
    try:
        reads = inspect([file])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert reads.records == 400_000
    assert file.stat().st_size > 80_000_000
    assert peak < 24_000_000
