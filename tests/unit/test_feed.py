# SPDX-License-Identifier: Apache-2.0
"""Feeders: what they write into real pipes, all of it, once, pairs in step; and how they end."""

import ctypes
import errno
import hashlib
import itertools
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from factories.fastq_files import GOOD, common, fastq, fed, layout, nothing_stays, packed, text, write
from factories.processes import wait_until
from firsttouch.errors import BadInput, CannotHere
from firsttouch.genomics import fastq as fastq_module
from firsttouch.genomics import feed, pipe_writer, sources
from firsttouch.genomics.fastq import inspect
from firsttouch.genomics.feed import DynamicFeeder, StaticFeeder, WeakScalingFeeder
from firsttouch.genomics.padded_fastq import block
from firsttouch.genomics.reads import BatchRule


def is_full(pipe):
    """Return whether a write into a pipe would block."""
    return not select.select([], [pipe], [], 0)[1]


@pytest.fixture
def small(monkeypatch):
    """Small pieces and blocks, so that a few records are many of them."""
    monkeypatch.setattr(feed, "PART_BYTES", 300)
    monkeypatch.setattr(sources, "_READ_BYTES", 7)


@given(
    records=fastq(mates=2),
    layouts=st.lists(layout(), min_size=2, max_size=2),
    form=st.sampled_from(("single", "files", "interleaved")),
    batch=st.integers(0, 400),
    instances=st.integers(1, 4),
    kind=st.sampled_from((StaticFeeder, DynamicFeeder)),
    gz=st.sampled_from((False, False, False, True)),
)
@common(60)
def test_all_is_fed_once_in_step(tmp_path, small, *, records, layouts, form, batch, instances, kind, gz):
    if form == "interleaved":
        data = [layouts[0]([r for pair in zip(*records, strict=True) for r in pair])]
    else:
        data = [written(r) for written, r in zip(layouts, records, strict=True)]
    files = [write(tmp_path / f"{n}.fq", packed(d, 3) if gz else d) for n, d in enumerate(data)]
    files, mates = (files[:1], 1) if form == "single" else (files, 2)
    reads = inspect(files, BatchRule(batch), interleaved=form == "interleaved")
    instances = min(instances, reads.batches.count)
    with nothing_stays():
        feeder = kind(reads, instances)
        texts = fed(feeder, instances, mates)
    assert sorted(n for share in feeder.shares for n in share) == list(range(len(feeder.parts)))
    counts = [part.records for part in feeder.parts]
    assert sum(counts) == len(records[0])
    begins = [0, *itertools.accumulate(counts)][:-1]
    assert set(begins) <= set(reads.batches.records.tolist())
    for instance in range(instances):
        for mate in range(mates):
            share = [r for n in feeder.shares[instance] for r in records[mate][begins[n] : begins[n] + counts[n]]]
            assert texts[instance][mate] == text(share)
    if mates == 2:
        with nothing_stays():
            texts = fed(feeder, instances, mates, interleaved=True)
        both = [r for pair in zip(*records, strict=True) for r in pair]
        for instance in range(instances):
            share = [r for n in feeder.shares[instance] for r in both[2 * begins[n] : 2 * (begins[n] + counts[n])]]
            assert texts[instance] == [text(share)]
    if kind is StaticFeeder:
        assert feeder.shares == [[n] for n in range(instances)]
        assert feeder.parts == feed.static_parts(reads, instances)


@given(
    records=fastq(mates=2),
    batch=st.sampled_from((0, 0, 100, 400)),
    instances=st.integers(1, 4),
    each=st.integers(1, 40),
    gz=st.sampled_from((False,) * 7 + (True,)),
)
@common(30)
def test_reads_are_repeated(tmp_path, small, *, records, batch, instances, each, gz):
    """Each instance gets as many as batches allow, and goes on where the one before it ended."""
    if gz:  # each repetition of a file starts a program
        instances, each = min(instances, 2), min(each, 2 * len(records[0]))
    files = [write(tmp_path / f"{n}.fq", packed(text(r), 2) if gz else text(r)) for n, r in enumerate(records)]
    reads = inspect(files, BatchRule(batch))
    largest = max(b - a for a, b in itertools.pairwise(reads.batches.records.tolist()))
    try:
        feeder = WeakScalingFeeder(reads, instances, each)
    except CannotHere:
        # An instance would have no batch.
        assert each < 2 * largest
        reject()
    with nothing_stays():
        texts = fed(feeder, instances, 2)
    at = 0
    for instance, share in enumerate(feeder.shares):
        count = sum(feeder.parts[n].records for n in share)
        assert abs(count - each) <= largest
        for mate, of_mate in enumerate(records):
            assert texts[instance][mate] == text([of_mate[n % len(of_mate)] for n in range(at, at + count)])
        at += count
        assert at % len(records[0]) in reads.batches.records
    assert abs(at - instances * each) <= largest


@pytest.mark.parametrize("marks", [1, 1 << 16])
def test_blocks_are_repeated(tmp_path, monkeypatch, marks):
    """Every instance gets whole blocks, whatever the number of marks that are kept of them."""
    monkeypatch.setattr(fastq_module, "ENOUGH_MARKS", marks)
    plain, file = write(tmp_path / "r.fq", text(GOOD * 12)[:-1]), tmp_path / "b.fq"
    block(inspect([plain]), [file], block_bytes=100, per_block=5)  # seven blocks, and one of one record
    reads = inspect([file], BatchRule(records=5, block=100))
    data = file.read_bytes()[:700]
    feeder = WeakScalingFeeder(reads, 2, 60)
    both = [of_mates[0] for of_mates in fed(feeder, 2, 1)]
    assert b"".join(both) == (data * 4)[: sum(map(len, both))]
    assert all(len(fed_to) % 100 == 0 for fed_to in both)
    block(inspect([plain]), [file], block_bytes=1000, per_block=40)
    reads = inspect([file], BatchRule(records=40, block=1000))
    with pytest.raises(CannotHere, match="36 records do not fill a block of 40"):
        WeakScalingFeeder(reads, 1, 60)


def test_when_a_program_began_to_read_a_file(tmp_path):
    reads = inspect([write(tmp_path / "r.fq", text(GOOD * 1000))])
    (tmp_path / "0").mkdir()
    feeder = WeakScalingFeeder(reads, 1, 3000)
    with feed.InstanceFiles(reads, [0], feeder, tmp_path) as files:
        ((name,), fds, stdin) = files.of(0)
        assert (fds, stdin) == ((), None)
        files.start()
        before = time.monotonic()
        assert Path(name).read_bytes() == text(GOOD * 1000)
    assert before <= feeder.reading_since[0] <= time.monotonic()
    assert not Path(name).exists()
    with feed.InstanceFiles(reads, [0], feeder, tmp_path) as files:
        files.start()
    assert feeder.reading_since == [None]


def test_when_a_reader_began(tmp_path):
    """It loads its index first, so to speak; and one to which a page is enough is not seen."""
    reads = inspect([write(tmp_path / "r.fq", text(GOOD * 1000))])
    for feeder in (StaticFeeder(reads, 1), DynamicFeeder(reads, 1), WeakScalingFeeder(reads, 1, 3000)):
        out_of, into = os.pipe()
        feeder.start([[into]])
        wait_until(lambda into=into: is_full(into), "a full pipe")
        before = time.monotonic()
        with os.fdopen(out_of, "rb") as stream:
            assert len(stream.read()) == len(text(GOOD * 1000))
        feeder.join()
        assert before <= feeder.reading_since[0] <= time.monotonic()
    few = StaticFeeder(inspect([write(tmp_path / "few.fq", text(GOOD))]), 1)
    assert fed(few, 1, 1) == [[text(GOOD)]]
    assert few.reading_since == [None]


@pytest.mark.parametrize("kind", [StaticFeeder, DynamicFeeder])
def test_one_mate_after_the_other_and_both(tmp_path, small, kind):
    """As bwa aln reads mate 1, then mate 2, and bwa sampe both."""
    files = [write(tmp_path / f"{n}.fq", text(GOOD * 50)) for n in range(2)]
    feeder = kind(inspect(files), 1)
    with nothing_stays():
        assert fed(feeder, 1, 2, wanted={0}) == [[text(GOOD * 50), b""]]
        assert fed(feeder, 1, 2, wanted={1}) == [[b"", text(GOOD * 50)]]
        assert fed(feeder, 1, 2) == [[text(GOOD * 50)] * 2]


def reads_of(tmp_path, size, mates=1):
    """Return checked reads of about *size* bytes for each mate, and the sums of their bytes."""
    record = [["@some/read:with:a:name", "ACGT" * 30, "+", "FF,#" * 30]]
    data = text(record * 100) * (size // len(text(record * 100)))
    return inspect([write(tmp_path / f"{n}.fq", data) for n in range(mates)]), hashlib.sha256(data).hexdigest()


def test_real_programs_are_fed(tmp_path):
    reads, expected = reads_of(tmp_path, 8_000_000, 2)
    for kind in (StaticFeeder, DynamicFeeder):
        programs, sinks = [], [[]]
        for _ in range(2):
            out_of, into = os.pipe()
            programs.append(subprocess.Popen(["sha256sum"], stdin=out_of, stdout=subprocess.PIPE))
            os.close(out_of)
            sinks[0].append(into)
        feeder = kind(reads, 1)
        feeder.start(sinks)
        feeder.join()
        assert [p.communicate(timeout=60)[0].split()[0].decode() for p in programs] == [expected] * 2


@pytest.mark.parametrize("kind", [StaticFeeder, DynamicFeeder])
@pytest.mark.parametrize("gz", [False, True])
@pytest.mark.parametrize("form", ["files", "interleaved"])
def test_mates_read_interleaved_in_any_amounts(tmp_path, kind, gz, form):
    """More of one mate than any pipe holds, before anything of the other."""
    data = text([["@r", "A" * 100, "+", "I" * 100]]) * 20_000
    if form == "files":
        files = [write(tmp_path / f"{n}.fq", packed(data) if gz else data) for n in range(2)]
    else:
        files = [write(tmp_path / "i.fq", packed(data * 2) if gz else data * 2)]
    reads = inspect(files, interleaved=form == "interleaved")
    with nothing_stays():
        pipes = [[os.pipe() for _ in range(2)] for _ in range(2)]
        feeder = kind(reads, 2)
        feeder.start([[into for _, into in ends] for ends in pipes])
        sizes = []
        # One instance reads all of mate 2 before anything of mate 1; then the other does.
        order = [out_of for ends in pipes for out_of, _ in reversed(ends)]
        if kind is DynamicFeeder:
            # Who does not read gets little: all that is left goes to the first.
            order = [pipes[0][1][0], pipes[0][0][0], pipes[1][1][0], pipes[1][0][0]]
        for out_of in order:
            size = 0
            with os.fdopen(out_of, "rb", buffering=0, closefd=False) as stream:
                while got := len(stream.read(1 << 20)):
                    size += got
            sizes.append(size)
        feeder.join()
        for ends in pipes:
            for out_of, into in ends:
                os.close(out_of)
                with pytest.raises(OSError, match="Bad file descriptor"):
                    os.fstat(into)
    assert sum(sizes) == 2 * len(data)
    assert sizes[0] == sizes[1]
    assert sizes[2] == sizes[3]


@pytest.mark.parametrize("kind", [StaticFeeder, DynamicFeeder])
def test_dynamic_pieces_go_to_who_reads(tmp_path, kind):
    reads, _ = reads_of(tmp_path, 10_000_000)
    slow, fast = os.pipe(), os.pipe()
    feeder = kind(reads, 2)
    feeder.start([[slow[1]], [fast[1]]])
    size = 0
    with os.fdopen(fast[0], "rb", buffering=0) as stream:
        while got := len(stream.read(1 << 20)):
            size += got
    with os.fdopen(slow[0], "rb") as stream:
        rest = len(stream.read())
    feeder.join()
    assert size + rest == reads.files[0].stat().st_size
    if kind is DynamicFeeder:
        # A pipe's content and the piece that waited for more room.
        assert rest <= pipe_writer.PIPE_BYTES + 2 * feed.PART_BYTES
    else:
        assert abs(size - rest) < 1000


@pytest.mark.parametrize("kind", [StaticFeeder, DynamicFeeder])
@pytest.mark.parametrize("gz", [False, True])
def test_a_reader_that_goes_away_is_no_error(tmp_path, kind, gz):
    data = text(GOOD) * 50_000
    reads = inspect([write(tmp_path / "r.fq", packed(data) if gz else data)])
    with nothing_stays():
        out_of, into = os.pipe()
        feeder = kind(reads, 1)
        feeder.start([[into]])
        os.read(out_of, 10)
        os.close(out_of)
        feeder.join()


@pytest.mark.parametrize("kind", [StaticFeeder, DynamicFeeder])
@pytest.mark.parametrize("gz", [False, True])
def test_stop_is_prompt_and_leaves_nothing(tmp_path, kind, gz):
    data = text(GOOD) * 50_000
    reads = inspect([write(tmp_path / f"{n}.fq", packed(data) if gz else data) for n in range(2)])
    feeder = kind(reads, 3)
    feeder.stop()  # before anything was started
    with nothing_stays():
        pipes = [[os.pipe() for _ in range(2)] for _ in range(3)]
        feeder.start([[into for _, into in ends] for ends in pipes])
        wait_until(lambda: all(is_full(into) for ends in pipes for _, into in ends), "full pipes")
        stopped = threading.Thread(target=feeder.stop)
        stopped.start()
        stopped.join(120)
        assert not stopped.is_alive()
        feeder.stop()
        feeder.join()
        for ends in pipes:
            for out_of, into in ends:
                with pytest.raises(OSError, match="Bad file descriptor"):
                    os.fstat(into)
                os.close(out_of)


@pytest.mark.parametrize("kind", [StaticFeeder, DynamicFeeder])
@pytest.mark.parametrize("how", ["touched", "removed", "cut"])
def test_files_that_change_meanwhile(tmp_path, kind, how):
    file = write(tmp_path / "r.fq", text(GOOD * 1000))
    feeder = kind(inspect([file]), 2)
    if how == "touched":
        os.utime(file, ns=(1, 1))
    elif how == "removed":
        file.unlink()
    else:
        write(file, text(GOOD * 500))
    with pytest.raises(BadInput, match=f"^{file}: (was changed after|cannot be read)"):
        fed(feeder, 2, 1)


def test_a_file_that_is_cut_while_it_is_fed(tmp_path):
    file = write(tmp_path / "r.fq", text(GOOD) * 150_000)
    feeder = StaticFeeder(inspect([file]), 1)
    with nothing_stays():
        out_of, into = os.pipe()
        feeder.start([[into]])
        os.read(out_of, 10)
        os.truncate(file, 2_000_000)
        with os.fdopen(out_of, "rb") as stream:
            stream.read()
        with pytest.raises(BadInput, match=f"^{file}: ends too early"):
            feeder.join()


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EOPNOTSUPP])
def test_where_splice_cannot_be_done(tmp_path, monkeypatch, code):
    def refuse(*_, **__):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "splice", refuse)
    data = text(GOOD) * 40_000
    for kind in (StaticFeeder, DynamicFeeder):
        assert fed(kind(inspect([write(tmp_path / "r.fq", data)]), 1), 1, 1) == [[data]]
        assert fed(kind(inspect([write(tmp_path / "r.gz", packed(data))]), 1), 1, 1) == [[data]]


def test_other_errors_are_raised_where_they_are_waited_for(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "splice", refuse)
    feeder = StaticFeeder(inspect([write(tmp_path / "r.fq", text(GOOD * 100))]), 3)
    with nothing_stays(), pytest.raises(OSError, match="Input/output error"):
        fed(feeder, 3, 1)


def test_an_interrupt_ends_all(tmp_path):
    """A real Ctrl-C, of a program of its own that feeds a program that never ends."""
    file = write(tmp_path / "r.fq.gz", packed(text(GOOD) * 50_000))
    script = f"""
import os, pathlib, time
from firsttouch.genomics.feed import StaticFeeder; from firsttouch.genomics.fastq import inspect
tasks = len(os.listdir("/proc/self/task"))
reads = inspect([pathlib.Path({str(file)!r})])
out_of, into = os.pipe()
feeder = StaticFeeder(reads, 1)
feeder.start([[into]])
try:
    print("fed", flush=True)
    feeder.join()
except KeyboardInterrupt:
    feeder.stop()
    children = pathlib.Path(f"/proc/self/task/{{os.getpid()}}/children").read_text()
    # Python is told of a thread's end before the kernel is.
    end = time.monotonic() + 60
    while len(os.listdir("/proc/self/task")) > tasks and time.monotonic() < end:
        time.sleep(0.01)
    print(len(os.listdir("/proc/self/task")) - tasks, len(children.split()), flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout.readline() == "fed\n"
        status = Path(f"/proc/{program.pid}/status")
        wait_until(lambda: "State:\tS" in status.read_text(), "the program to wait for its threads")
        program.send_signal(signal.SIGINT)
        assert program.communicate(timeout=120)[0] == "0 0\n"
    assert program.returncode == 0


def test_a_limit_of_watches_is_reported(tmp_path, monkeypatch, capsys):
    library = ctypes.CDLL(None)
    refusing = SimpleNamespace(inotify_init1=library.inotify_init1, inotify_add_watch=lambda *_: -1)
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: refusing)
    times = feed._FirstReads([tmp_path / "1.fq", tmp_path / "2.fq"]).stop()
    assert times == {}
    messages = capsys.readouterr().err.splitlines()
    assert len(messages) == 1
    assert messages[0].startswith(
        f"note: when an instance begins to read is not known for all ({tmp_path}/1.fq: inotify"
    )
