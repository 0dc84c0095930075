# SPDX-License-Identifier: Apache-2.0
"""Reads of every form, read once: the same records and parts as by the plain rule, and exact errors."""

import contextlib
import itertools
import os
import subprocess
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factories.fastq_files import (
    BATCHES,
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
from firsttouch.genomics import fastq as blocks_module
from firsttouch.genomics.read_stream import ReadStream

pytestmark = pytest.mark.unit
SIZES = st.sampled_from([(1, 0), (7, 0), (64, 16), (1000, 300), (1 << 21, 1 << 14)])


def zstd(data):
    return subprocess.run(["zstd", "-q", "-c"], input=data, stdout=subprocess.PIPE, check=True).stdout


def bam(records, *, paired, options=("-b",), header="@HD\tVN:1.6\tSO:unsorted\n"):
    """Return unaligned BAM (or CRAM) of one list of records, or of two lists of mates."""
    lines = [header]
    for mates in zip(*records, strict=True):
        for mate, (name, bases, _, qualities) in enumerate(mates):
            flag = (77, 141)[mate] if paired else 4
            lines.append(f"{name[1:]}\t{flag}\t*\t0\t0\t*\t*\t0\t0\t{bases}\t{qualities}\n")
    argv = ["samtools", "view", *options, "-"]
    done = subprocess.run(argv, input="".join(lines).encode(), stdout=subprocess.PIPE, check=True)
    return done.stdout


FORMS = {"plain": bytes, "gzip": packed, "members": lambda d: packed(d, 7), "bgzip": bgzf, "zstd": zstd}


@contextlib.contextmanager
def offered(file, data, how):
    """Offer *data* as a file, a FIFO, a descriptor or standard input; yields the name for the command line."""
    if how == "file":
        yield str(write(file, data))
        return
    with contextlib.ExitStack() as stack:
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
            if writer.is_alive() and how == "fifo":
                os.close(os.open(file, os.O_RDONLY | os.O_NONBLOCK))
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
@common(150)
def test_records_and_parts_are_those_of_the_rule(tmp_path, monkeypatch, data):
    size = data.draw(SIZES)
    monkeypatch.setattr(blocks_module, "BLOCK", size[0])
    monkeypatch.setattr("firsttouch.genomics.fastq.HEAD", size[1])
    monkeypatch.setattr("firsttouch.genomics.read_stream.HEAD", size[1])
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
    with contextlib.ExitStack() as stack:
        stack.enter_context(nothing_stays())
        for lane, end in enumerate(ends):
            here = [mate[begin:end] for mate in records]
            files = [[r for pair in zip(*here, strict=True) for r in pair]] if interleaved else here
            names.append([])
            for number, content in enumerate(files):
                form = data.draw(st.sampled_from(sorted(FORMS)))
                how = data.draw(st.sampled_from([*hows, *([] if lane or number else ["stdin"])]))
                file = tmp_path / f"{lane}.{number}.{how}"
                names[-1].append(stack.enter_context(offered(file, FORMS[form](written(content)), how)))
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
