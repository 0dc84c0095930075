# SPDX-License-Identifier: Apache-2.0
"""Reads of every form, read once: the same records and parts as by the plain rule, and exact errors."""

import contextlib
import gzip
import itertools
import os
import random
import re
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factories.fastq_files import (
    BATCHES,
    GOOD,
    SIZES,
    batch_starts,
    bgzf,
    common,
    fastq,
    layout,
    nothing_stays,
    packed,
    text,
    write,
)
from firsttouch.errors import BadInput
from firsttouch.genomics import fastq as blocks_module
from firsttouch.genomics.pipe_writer import Stopped
from firsttouch.genomics.read_stream import PARTS_EACH, ReadStream
from firsttouch.genomics.reads import BatchRule

FORMS = {"plain": bytes, "gzip": packed, "members": lambda d: packed(d, 7), "bgzip": bgzf}


@contextlib.contextmanager
def offered(file, data, how):
    """Offer one input as :func:`offer` does, and check that nothing of it stays."""
    with nothing_stays(), offer(file, data, how) as name:
        yield name


@contextlib.contextmanager
def offer(file, data, how):
    """Offer *data* as a file, a FIFO, a descriptor or standard input; yields the name for the command line."""
    with contextlib.ExitStack() as stack:
        if how == "file":
            yield str(write(file, data))
            return
        if how == "fifo":
            with contextlib.suppress(FileExistsError):
                os.mkfifo(file)
            name, into = str(file), None
        else:
            out, into = os.pipe()
            name = f"/dev/fd/{out}"
            stack.callback(os.close, out)
            if how == "stdin":
                before = os.dup(0)
                os.dup2(out, 0)
                stack.callback(os.close, before)
                stack.callback(os.dup2, before, 0)
                name = "-"

        def feed():
            with contextlib.suppress(BrokenPipeError), open(into or file, "wb") as target:  # noqa: PTH123
                target.write(data)

        writer = threading.Thread(target=feed)
        writer.start()
        try:
            yield name
        finally:
            # Without a reader, the writer of a FIFO waits in open(2), or will when it gets there.
            while how == "fifo" and writer.is_alive():
                os.close(os.open(file, os.O_RDONLY | os.O_NONBLOCK))
                writer.join(0.01)
            stack.close()
            writer.join()


def parts_of(lanes, **options):
    """Return the parts of a stream, each as (records, bases, texts by pipe), after checks of the pieces."""
    parts, bases = [], 0
    with ReadStream(lanes, **options) as stream:
        opened = False
        for piece in stream:
            assert piece.records
            if not opened:
                parts.append([0, 0, [b""] * len(piece.data)])
            assert piece.part == len(parts) - 1
            parts[-1][0] += piece.records
            parts[-1][1] += piece.bases
            parts[-1][2] = [a + bytes(b) for a, b in zip(parts[-1][2], piece.data, strict=True)]
            opened, bases = not piece.last, bases + piece.bases
        assert not opened
        assert stream.progress.records == sum(part[0] for part in parts)
        assert stream.progress.bases == bases
        progress = stream.progress
    return parts, progress


def expected_parts(records, rule, least):
    """Return the parts by the plain rule: the numbers of their first records, and the end."""
    pairs = list(zip(*records, strict=True))
    sizes = [(sum(len(r[1]) for r in pair), len(text(pair[:1]))) for pair in pairs]
    borders, held = [0], 0
    starts = {*batch_starts(sizes, rule), len(pairs)}
    for number, pair in enumerate(pairs):
        if number in starts and held >= max(1, least):
            borders.append(number)
            held = 0
        held += len(text(pair))
    return [*borders, len(pairs)]


@given(st.data())
@common(30)
def test_records_and_parts_are_those_of_the_rule(tmp_path, monkeypatch, data):
    size = data.draw(SIZES)
    monkeypatch.setattr(blocks_module, "BLOCK", size[0])
    monkeypatch.setattr("firsttouch.genomics.fastq.HEAD", size[1])
    mates = data.draw(st.sampled_from((1, 2)))
    records = data.draw(fastq(mates=mates))
    rule, least = data.draw(BATCHES), data.draw(st.sampled_from((0, 1, 200, 2000)))
    interleaved = mates == 2 and data.draw(st.booleans())
    merged = mates == 2 and data.draw(st.booleans())
    count = len(records[0])
    ends = sorted({*data.draw(st.lists(st.integers(1, count), max_size=2)), count})
    names, begin = [], 0
    written = data.draw(layout())
    hows = ["file", "fd", "fifo"]
    with nothing_stays(), contextlib.ExitStack() as stack:
        for lane, end in enumerate(ends):
            here = [mate[begin:end] for mate in records]
            files = [[r for pair in zip(*here, strict=True) for r in pair]] if interleaved else here
            names.append([])
            for number, content in enumerate(files):
                form = data.draw(st.sampled_from([*["plain"] * 15, *sorted(FORMS)]))
                how = data.draw(st.sampled_from([*hows, *([] if lane or number else ["stdin"])]))
                file = tmp_path / f"{lane}.{number}.{how}"
                names[-1].append(stack.enter_context(offer(file, FORMS[form](written(content)), how)))
            begin = end
        parts, _ = parts_of(names, interleaved=interleaved, rule=rule, least_part_bytes=least, merged=merged)
    borders = expected_parts(records, rule, least)
    expected = []
    for first, end in itertools.pairwise(borders):
        here = [mate[first:end] for mate in records]
        both = [r for pair in zip(*here, strict=True) for r in pair]
        texts = [text(both)] if merged else [text(mate) for mate in here]
        expected.append([end - first, sum(len(r[1]) for r in both), texts])
    assert parts == expected


def random_records(count, mates=1):
    """Return reads that are hard to compress, by mate."""
    rng = random.Random(count)  # noqa: S311
    return [
        [
            [f"@r{n}", "".join(rng.choices("ACGT", k=100)), "+", "".join(rng.choices("FF:,#", k=100))]
            for n in range(count)
        ]
        for _ in range(mates)
    ]


# ----------------------------------------------------------------------
# Errors


def error_of(lanes, **options):
    with pytest.raises(BadInput) as caught, ReadStream(lanes, **options) as stream:
        for _ in stream:
            pass
    return str(caught.value)


END = "Compressed file ended before the end-of-stream marker was reached"
FEW = "or a few other bytes follow them: `gzip -t` tells which"
TRUNCATED = rf"the gzip data are truncated or damaged, {FEW} \(EOFError: {END}\)"


@pytest.mark.parametrize("form", ["gzip", "bgzip"])
def test_truncated_data(tmp_path, form):
    records = random_records(300, mates=2)
    data = FORMS[form](text([r for pair in zip(*records, strict=True) for r in pair]))
    last = len(data) - 1
    for how, cut in (("file", len(data) // 2), ("file", last), ("fd", len(data) // 2), ("fd", last)):
        with offered(tmp_path / "r", data[:cut], how) as name:
            message = error_of([(name,)], interleaved=True)
        assert re.fullmatch(rf"{name}: record \d+ or later: {TRUNCATED}", message), message


@pytest.mark.parametrize("form", ["gzip", "bgzip"])
def test_data_that_follow_the_gzip_data(tmp_path, form):
    """Zeros are the padding of tapes, which gzip ignores without a warning."""
    data = FORMS[form](text(random_records(300)[0]))
    for how in ("file", "fd"):
        for after, reason in (
            (b"a line of text\n", "data that are not gzip follow the gzip data; "),
            (b"\n", TRUNCATED),
            (b"nine byte", TRUNCATED),
        ):
            with offered(tmp_path / "r", data + after, how) as name:
                message = error_of([(name,)])
            assert re.match(rf"{name}: record \d+ or later: {reason}", message), message
        with offered(tmp_path / "r", data + bytes(512), how) as name, ReadStream([(name,)]) as stream:
            assert sum(1 for _ in stream)


REFUSED = {
    **{b"BZh9": ("bzip2", "bzip2 -dc"), b"\xfd7zXZ\0": ("xz", "xz -dc"), b"PK\3\4": ("zip", "unzip -p")},
    **{packed(b"BAM\1"): ("BAM", "samtools fastq -n"), b"CRAM\3": ("CRAM", "samtools fastq -n")},
}


def test_inputs_that_are_refused(tmp_path):
    good, other = (write(tmp_path / name, text(GOOD)) for name in ("1.fq", "2.fq"))
    for begin, (form, program) in REFUSED.items():
        file = write(tmp_path / "r", begin + bytes(50))
        reason = f"is {form}, which is not supported"
        assert error_of([(str(good),), (str(file),)]) == f"{file}: {reason}: give <({program} {file})"
        with offered(tmp_path / "r", begin + bytes(50), "fd") as name:
            assert error_of([(name,)]) == f"{name}: {reason}: pipe it through `{program}`"
    # A later lane is refused before the first one is read.
    with pytest.raises(BadInput, match=f"^{tmp_path}/no: .*No such file"):
        ReadStream([(str(good),), (str(tmp_path / "no"),)])
    with pytest.raises(BadInput, match=f"^{tmp_path}: .*Is a directory"):
        ReadStream([(str(tmp_path),)])
    with pytest.raises(BadInput, match=r"^/proc/self/mem: .*Input/output error"):
        ReadStream([(str(good),), ("/proc/self/mem",)])
    with pytest.raises(BadInput, match=f"^{good}: .*mate 1"):
        ReadStream([(str(good), str(good))])
    with pytest.raises(BadInput, match=r"^2 read files: "):
        ReadStream([(str(good), str(other))], interleaved=True)
    with offered(tmp_path / "r", text(GOOD), "fd") as name:
        assert error_of([(name,), (name,)]) == f"{name}: is named twice, but a pipe can be read only once"
    main, terminal = os.openpty()
    with pytest.raises(BadInput, match=r"terminal"):
        ReadStream([(os.ttyname(terminal),)])
    os.close(main)
    os.close(terminal)


def test_lanes_that_end_early(tmp_path):
    good, short, empty = (write(tmp_path / f"{n}.fq", text(GOOD[:n])) for n in (3, 2, 0))
    fewer = f"{good}:9: record 3: no mate, the other file of the pair ends before it"
    assert error_of([(str(good), str(short))]) == fewer
    assert error_of([(str(good), str(write(tmp_path / "m", text(GOOD)))), (str(short), str(good))]) == fewer
    assert error_of([(str(empty),), (str(empty),)]) == f"{empty}: no reads"
    odd = write(tmp_path / "odd", text([GOOD[0], GOOD[0], GOOD[1]]))
    reason = "record 3 has no mate, and the file of interleaved pairs ends"
    assert error_of([(str(odd),)], interleaved=True) == f"{odd}:9: {reason}"


@pytest.mark.parametrize("wait", ["no writer", "no data", "in the middle", "gzip in the middle"])
def test_a_stop_from_another_thread(tmp_path, wait):
    fifo = tmp_path / "r.fq"
    os.mkfifo(fifo)
    with nothing_stays():
        fd = None if wait == "no writer" else os.open(fifo, os.O_RDWR)
        if wait.endswith("middle"):
            os.write(fd, gzip.compress(text(GOOD) * 9)[:50] if "gzip" in wait else text(GOOD) * 9)
        with ReadStream([(str(fifo),)]) as stream:
            timer = threading.Timer(0.2, stream.stop)
            timer.start()
            with pytest.raises(Stopped):
                next(iter(stream))
            timer.join()
        if fd is not None:
            os.close(fd)


def test_pieces_stay_valid_and_an_early_end_leaves_nothing(tmp_path):
    records = random_records(10_000)[0]
    file = write(tmp_path / "r.fq", text(records))
    with nothing_stays(), ReadStream([(str(file),)], least_part_bytes=1 << 16) as stream:
        pieces = list(stream)
    assert b"".join(bytes(piece.data[0]) for piece in pieces) == text(records)
    with nothing_stays(), ReadStream([(str(write(tmp_path / "r.gz", packed(text(records)))),)]) as stream:
        assert next(iter(stream)).data[0][:3] == b"@r0"
        assert 0 <= stream.progress.fraction <= 1


@given(
    names=st.lists(st.sampled_from(("a", "ab", "a/1", "a/2", "a/7", "b", "b x", "b\ty", "/1", "x/1")), min_size=1),
    mates=st.sampled_from((1, 2)),
    size=SIZES,
)
@common(60)
def test_records_of_one_name_stay_together(tmp_path, monkeypatch, *, names, mates, size):
    """Without the end /N, as minimap2 takes names."""
    monkeypatch.setattr(blocks_module, "BLOCK", size[0])
    monkeypatch.setattr("firsttouch.genomics.fastq.HEAD", size[1])
    words = [name.split()[0] for name in names]
    templates = [word[:-2] if len(word) > 2 and word[-2] == "/" else word for word in words]
    rule = BatchRule(names=True)
    if mates == 1:
        reads = "".join(f"@{n}\nAC\n+\nII\n" for n in names)
        lanes = [(str(write(tmp_path / "r", reads.encode())),)]
    else:
        both = ("".join(f"@{t}/{m}\nAC\n+\nII\n" for t in templates) for m in (1, 2))
        lanes = [tuple(str(write(tmp_path / f"r{m}", reads.encode())) for m, reads in enumerate(both))]
    parts, _ = parts_of(lanes, rule=rule)
    sizes = [len(list(group)) for _, group in itertools.groupby(templates)]
    assert [part[0] for part in parts] == sizes
    index = blocks_module.inspect([Path(file) for file in lanes[0]], rule).batches
    assert list(index.records) == [*itertools.accumulate(sizes, initial=0)]


def parts_for(source, **options):
    """Return the bytes of each part, and whether it goes where the part before went."""
    sizes, remainders = [0], []
    with ReadStream([[str(source)]], least_part_bytes=20_000, **options) as stream:
        for piece in stream:
            sizes[-1] += len(piece.data[0])
            if piece.last:
                remainders.append(piece.is_remainder)
                sizes.append(0)
    return sizes[:-1], remainders


@pytest.mark.parametrize("instances", [2, 10])
def test_parts_follow_the_size_of_the_input(tmp_path, instances):
    """Few reads have parts for many instances, and many reads have large parts."""
    record = [["@r", "A" * 45, "+", "I" * 45]]
    few, many = (write(tmp_path / f"{n}.fq", text(record * n)) for n in (1000, 40_000))
    sizes, _ = parts_for(few, instances=instances)
    assert sum(sizes) == few.stat().st_size
    # A part is complete with the first record that makes it large enough.
    assert (PARTS_EACH - 2) * instances < len(sizes) <= PARTS_EACH * instances
    shares = [sum(sizes[number::instances]) for number in range(instances)]
    assert max(shares) < 1.15 * min(shares)
    assert set(parts_for(many, instances=instances)[0][:-1]) == {-(-20_000 // 97) * 97}
    assert parts_for(few, instances=instances, smallest_part_bytes=9_000)[0][0] == -(-9_000 // 97) * 97


def test_a_remainder_is_no_input_of_its_own(tmp_path):
    """bowtie 1.3.1 with several threads loses the reads of an instance that gets fewer than 16."""
    record = ["@r", "A" * 45, "+", "I" * 45]
    for count, expected in ((412, [False, False]), (412 + 50, [False, False, True]), (412 + 110, [False] * 3)):
        file = write(tmp_path / "r.fq", text([record] * count))
        sizes, remainders = parts_for(file, instances=3, smallest_part_bytes=20_000)
        assert remainders == expected
        assert sum(sizes) == file.stat().st_size
    assert parts_for(write(tmp_path / "r.fq", text([record])), instances=3, smallest_part_bytes=20_000)[1] == [
        False
    ]


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("content", [b"", gzip.compress(b"")], ids=["plain", "gzip"])
def test_an_empty_lane_among_others(tmp_path, place, content):
    lanes = [(str(write(tmp_path / f"{n}.fq", text(GOOD))),) for n in range(2)]
    whole, _ = parts_of(lanes)
    lanes.insert(place, (str(write(tmp_path / "empty.fq", content)),))
    parts, progress = parts_of(lanes)
    assert parts == whole
    assert progress.records == 2 * len(GOOD)


@pytest.mark.parametrize("how", ["file", "fifo"])
def test_lanes_that_divide_differently_between_the_mates(tmp_path, how):
    """Bowtie 1 and 2 and HISAT 2 read the files of each mate as one."""
    mates, cuts = random_records(1000, mates=2), ((0, 500, 500, 1000), (0, 0, 400, 1000))
    files = [
        [
            (tmp_path / f"{mate}-{lane}", text(mates[mate][cuts[mate][lane] : cuts[mate][lane + 1]]))
            for mate in (0, 1)
        ]
        for lane in range(3)
    ]
    with contextlib.ExitStack() as stack:
        lanes = [[stack.enter_context(offer(file, data, how)) for file, data in lane] for lane in files]
        parts, progress = parts_of(lanes)
    assert [b"".join(part[2][mate] for part in parts) for mate in range(2)] == [text(m) for m in mates]
    assert progress.fraction == (1.0 if how == "file" else None)
    if how == "file":
        wrong = write(tmp_path / "wrong", text([*mates[1][400:999], ["@other", "A", "+", "I"]]))
        assert f"{wrong}:2397: record 600: " in error_of([*lanes[:2], [lanes[2][0], str(wrong)]])


def test_a_program_that_writes_both_mates_in_turn(tmp_path):
    """It waits for the reader of one pipe before it writes more to the other."""
    fifos, block = [tmp_path / "1", tmp_path / "2"], text([["@r", "A" * 1000, "+", "I" * 1000]]) * 10

    def write_in_turn():
        with fifos[0].open("wb") as first, fifos[1].open("wb") as second, contextlib.suppress(BrokenPipeError):
            for pipe in (first, second) * 300:
                pipe.write(block)

    for fifo in fifos:
        os.mkfifo(fifo)
    threading.Thread(target=write_in_turn, daemon=True).start()
    with ReadStream([list(map(str, fifos))]) as stream:
        timer = threading.Timer(20, stream.stop)
        timer.start()
        assert sum(piece.records for piece in stream) == 3000
        timer.cancel()


def test_an_error_in_one_mate_does_not_wait_for_the_other(tmp_path):
    bad, fifo = write(tmp_path / "1.fq", b"@r\nA\n+\n\n"), tmp_path / "2"
    os.mkfifo(fifo)
    with os.fdopen(os.open(fifo, os.O_RDWR), "wb") as idle:  # its reader does not reach an end
        idle.write(text([["@r", "A" * 1000, "+", "I" * 1000]]) * 3)
        idle.flush()
        assert "record 1 has 1 bases but 0 qualities" in error_of([(str(bad), str(fifo))])


def test_names_of_mates_that_may_differ(tmp_path):
    files = []
    for mate in (b"1", b"2"):
        renamed = [[f"{name}.{mate.decode()}", *lines] for name, *lines in GOOD]
        files.append(str(write(tmp_path / f"{mate.decode()}.fq", text(renamed))))
    assert "are no pair" in error_of([tuple(files)])
    parts, progress = parts_of([tuple(files)], any_names=True)
    assert progress.records == len(GOOD)
    assert parts
