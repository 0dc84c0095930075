# SPDX-License-Identifier: Apache-2.0
"""FASTQ: checked, divided at batches, and fed on without a change."""

import gzip
import io
import itertools
import os
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firsttouch import reads
from firsttouch.errors import BadInput, CannotHere
from firsttouch.reads import Batches, divide, entries, feed, scan

pytestmark = pytest.mark.unit

BASES = st.text("ACGTN", max_size=300)
NAMES = st.text("abz019:.#@+/", min_size=1, max_size=8).filter(lambda n: not n.endswith(("/1", "/2")))
#: Files are made anew for each example, so that one folder for all of a test does.
COMMON = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def fastq(draw, mate=""):
    """Records as lists of four lines; qualities may begin with @ or +."""
    found = []
    for name in draw(st.lists(NAMES, min_size=1, max_size=12)):
        bases = draw(BASES)
        first = draw(st.sampled_from("@+I!"))
        quality = (first + "@" * len(bases))[: len(bases)]
        comment = draw(st.sampled_from(("", " 1:N:0:1", "\tc  d")))
        found.append([f"@{name}{mate}{comment}", bases, "+" + draw(st.sampled_from(("", name))), quality])
    return found


def text(records, newline="\n"):
    return "".join(line + newline for record in records for line in record).encode()


def written(file, data, *, packed=False):
    file.write_bytes(gzip.compress(data, 1) if packed else data)
    return file


def fed(files, first, end):
    """Return what feed() writes of each file, through a real pipe."""
    found = []
    for file in files:
        out_of, into = os.pipe()
        feeder = threading.Thread(target=feed, args=(file, first, end, os.fdopen(into, "wb")))
        feeder.start()
        with os.fdopen(out_of, "rb") as stream:
            found.append(stream.read())
        feeder.join()
    return found


@given(fastq(), st.sampled_from(("\n", "\r\n")), st.booleans(), st.booleans())
@COMMON
def test_records_there_and_back(tmp_path, records, newline, packed, whole):
    data = text(records, newline)
    # An empty last line cannot do without its newline: it would not be there.
    if not whole and records[-1][3]:
        data = data.rstrip(b"\r\n")
    file = written(tmp_path / "r.fq", data, packed=packed)
    assert b"".join(b"".join(e) for e in entries(file)) == text(records)
    assert scan([file]) == Batches(tuple(range(len(records))), len(records), sum(len(r[1]) for r in records))


@given(fastq(), st.integers(1, 400), st.integers(1, 5), st.booleans())
@COMMON
def test_parts_are_the_whole_and_begin_with_batches(tmp_path, records, batch, parts, paired):
    files = [written(tmp_path / "1.fq", text(records))]
    if paired:
        mates = [[r[0].split()[0], "AC", "+", "@@"] for r in records]
        files.append(written(tmp_path / "2.fq", text(mates), packed=True))
    found = scan(files, batch)
    sizes = [len(r[1]) + 2 * paired for r in records]
    assert found.bases == sum(sizes)
    for first, end in itertools.pairwise((*found.starts, found.records)):
        # A batch is full with its last record, and not before.
        assert sum(sizes[first : end - 1]) < batch
        assert sum(sizes[first:end]) >= batch or end == found.records
    if len(found.starts) < parts:
        with pytest.raises(CannotHere, match=f"too few for {parts} instances"):
            divide(found, parts)
        return
    ranges = divide(found, parts)
    assert len(ranges) == parts
    assert [r[0] for r in ranges] == [0, *(r[1] for r in ranges[:-1])]
    assert ranges[-1][1] == len(records)
    assert all(first < end and first in found.starts for first, end in ranges)
    written_ = [fed(files, first, end) for first, end in ranges]
    for number, file in enumerate(files):
        assert b"".join(w[number] for w in written_) == b"".join(b"".join(e) for e in entries(file))


def test_parts_are_as_equal_as_batches_allow():
    batches = Batches(tuple(range(0, 1000, 10)), 1000, 1)
    assert {end - first for first, end in divide(batches, 4)} == {250}
    assert {end - first for first, end in divide(batches, 8)} == {120, 130}


GOOD = [["@a", "ACGT", "+", "IIII"], ["@b", "AC", "+", "II"], ["@c", "A", "+", "@"]]


@pytest.mark.parametrize(
    ("record", "reason", "at"),
    [
        (["b", "AC", "+", "II"], "begins without @", 5),
        (["", "AC", "+", "II"], "begins without @", 5),
        (["@b", "AC", "-", "II"], r"has no \+ line \(is it truncated\?\)", 7),
        (["@b", "AC", "+", "I"], r"has 2 bases but 1 qualities \(is it truncated\?\)", 8),
        (["@b", "AC", "+", "III"], "has 2 bases but 3 qualities", 8),
        (["@b", "AC\nGT", "+", "II"], r"has no \+ line", 7),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_the_error_names_file_record_and_line(tmp_path, record, reason, at, packed):
    file = written(tmp_path / "r.fq", text([GOOD[0], record, GOOD[2]]), packed=packed)
    with pytest.raises(BadInput, match=rf"^{file}:{at}: record 2 {reason}"):
        scan([file])


def test_truncated_at_any_byte(tmp_path):
    data = text(GOOD)
    ends = {len(text(GOOD[:n])) for n in range(4)}
    ends |= {e - 1 for e in ends if e}  # without the last newline nothing is missing
    for cut in range(len(data)):
        file = written(tmp_path / "r.fq", data[:cut])
        if cut in ends and cut > 0:
            assert scan([file]).records == data[: cut + 1].count(b"+")
        else:
            with pytest.raises(BadInput, match=rf"^{file}: no reads|^{file}:\d+: record \d "):
                scan([file])


def test_gzip_truncated_or_damaged_at_any_byte(tmp_path):
    records = [[f"@r{n}", "ACGT" * 20, "+", "ABCD" * 20] for n in range(40)]
    packed = gzip.compress(text(records))
    for cut in range(2, len(packed)):
        file = written(tmp_path / "r.fq.gz", packed[:cut])
        with pytest.raises(BadInput, match=rf"^{file}: record \d+: the gzip data are truncated or damaged"):
            scan([file])
    for at in range(10, len(packed)):
        damaged = bytearray(packed)
        damaged[at] ^= 0x55
        file = written(tmp_path / "r.fq.gz", bytes(damaged))
        with pytest.raises(BadInput, match=rf"^{file}"):
            scan([file])


def test_gzip_of_many_members(tmp_path):
    """As bgzip writes it: blocks, and an empty one at the end; records go over their borders."""
    data = text(GOOD * 50)
    blocks = [data[i : i + 37] for i in range(0, len(data), 37)] + [b""]
    file = tmp_path / "r.fq.gz"
    file.write_bytes(b"".join(gzip.compress(b) for b in blocks))
    assert scan([file]).records == 150
    cut = file.read_bytes()[:-30]
    file.write_bytes(cut)
    with pytest.raises(BadInput, match="truncated or damaged"):
        scan([file])


@pytest.mark.parametrize("data", [b"", gzip.compress(b"")])
def test_no_reads(tmp_path, data):
    file = tmp_path / "r.fq"
    file.write_bytes(data)
    with pytest.raises(BadInput, match=rf"^{file}: no reads"):
        scan([file])
    with pytest.raises(BadInput, match="no reads"):
        scan([file, file])


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(BadInput, match=r"nothing\.fq: cannot be read: No such file"):
        scan([tmp_path / "nothing.fq"])
    with pytest.raises(BadInput, match="cannot be read: Is a directory"):
        scan([tmp_path])


@pytest.mark.parametrize(
    ("one", "other"),
    [("a", "a"), ("a/1", "a/2"), ("a/1 x", "a/2 y"), ("a 1:N:0", "a 2:N:0"), ("a\tx", "a")],
)
def test_names_of_a_pair(tmp_path, one, other):
    files = [written(tmp_path / f"{i}.fq", text([[f"@{n}", "A", "+", "I"]])) for i, n in enumerate((one, other))]
    assert scan(files) == Batches((0,), 1, 2)


def test_pairs_out_of_step(tmp_path):
    one = written(tmp_path / "1.fq", text(GOOD))
    other = written(tmp_path / "2.fq", text([GOOD[0], GOOD[2], GOOD[1]]))
    with pytest.raises(BadInput, match=rf"^{other}:5: record 2: @b and @c are no pair"):
        scan([one, other])


@pytest.mark.parametrize("shorter", [0, 1])
def test_files_of_a_pair_that_are_not_equally_long(tmp_path, shorter):
    files = [written(tmp_path / f"{n}.fq", text(GOOD[: 2 if n == shorter else 3])) for n in range(2)]
    with pytest.raises(BadInput, match=rf"^{files[shorter]}: ends after 2 records, the other file of the pair"):
        scan(files)


def test_a_reader_that_goes_away_is_no_error(tmp_path):
    file = written(tmp_path / "r.fq", text(GOOD * 40_000))
    out_of, into = os.pipe()
    feeder = threading.Thread(target=feed, args=(file, 0, 120_000, os.fdopen(into, "wb")))
    feeder.start()
    os.read(out_of, 10)
    os.close(out_of)
    feeder.join(20)
    assert not feeder.is_alive()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(into)


def test_feed_closes_what_it_writes_to(tmp_path):
    sink = io.BytesIO()
    reads.feed(written(tmp_path / "r.fq", text(GOOD)), 1, 2, sink)
    assert sink.closed
