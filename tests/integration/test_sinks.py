# SPDX-License-Identifier: Apache-2.0
"""Outputs by real samtools: the contents equal a pipe's by hand, and failures leave nothing behind."""

import contextlib
import os
import random
import resource
import signal
import subprocess
import sys

import pytest

from factories.processes import wait_until
from firsttouch.errors import BadInput, Missing, RunFailed
from firsttouch.execution.placement_check import family
from firsttouch.genomics import sam
from firsttouch.genomics.sinks import AlignOutput, open_sink

BASES = 20_000
HEADER = (
    f"@SQ\tSN:one\tLN:{BASES}\n@SQ\tSN:two\tLN:{BASES}\n@RG\tID:a\tSM:b\n@PG\tID:p\tPN:p\tCL:by hand\n".encode()
)


@pytest.fixture(scope="module")
def genome(tmp_path_factory):
    """Returns a FASTA file of two sequences, without an index."""
    rng = random.Random(1)  # noqa: S311
    file = tmp_path_factory.mktemp("genome") / "ref.fa"
    file.write_text("".join(f">{name}\n{''.join(rng.choices('ACGT', k=BASES))}\n" for name in ("one", "two")))
    return file


@pytest.fixture(scope="module")
def alignments(genome):
    """Returns the SAM lines of 500 pairs in random order, a fifth of which are duplicates."""
    rng = random.Random(2)  # noqa: S311
    texts = genome.read_text().split()
    lines, at = [], 0
    for number in range(500):
        if number % 5:
            at = rng.randrange(BASES - 300)
        name, text = (("one", texts[1]), ("two", texts[3]))[at % 2]
        for flag, begin, mate in ((99, at, at + 200), (147, at + 200, at)):
            size = 300 if flag == 99 else -300
            read = text[begin : begin + 100]
            fields = (f"r{number}", flag, name, begin + 1, 60, "100M", "=", mate + 1, size, read, "I" * 100)
            lines.append("\t".join(map(str, [*fields, "RG:Z:a"])))
    return ("\n".join(lines) + "\n").encode()


def write(output, alignments, folder, **options):
    """Write all through a sink; return its files and the CPU seconds of its programs."""
    output.check()
    with open_sink(output, scratch=folder, **options) as sink:
        sink.begin(HEADER)
        sink.write(alignments)
        return sink.finish(), sink.cpu_seconds


def shell(command, folder, alignments):
    argv = ["sh", "-ec", command]
    subprocess.run(argv, cwd=folder, input=HEADER + alignments, check=True, capture_output=True)


def text_of(file, *options):
    # A reader of CRAM adds MD and NM, unless it is asked not to.
    argv = ["samtools", "view", "--no-PG", "-h", "--input-fmt-option", "decode_md=0", *options, file]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


#: Processes that fixtures of other modules have started.
EARLIER = set()


@pytest.fixture(autouse=True)
def _earlier():
    EARLIER.clear()
    EARLIER.update(family(os.getpid()))


def children():
    return [pid for pid in family(os.getpid()) if pid not in EARLIER]


@contextlib.contextmanager
def stdout_to(fd):
    """Make *fd* the standard output of this process and of the programs that it starts."""
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(fd, 1)
    try:
        yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)


@pytest.mark.parametrize(
    ("name", "options", "by_hand", "files"),
    [
        ("out.sam", {}, "cat > hand.sam", [""]),
        ("out.bam", {}, "samtools view -b -o hand.sam", [""]),
        ("out.cram", {}, "samtools view -b -o hand.sam", [""]),
        ("out.sam", {"sort": True}, "samtools sort -o hand.sam", [""]),
        ("out.bam", {"sort": True, "threads": 2}, "samtools sort -o hand.sam", ["", ".bai"]),
        ("out.cram", {"sort": True}, "samtools sort -o hand.sam", ["", ".crai"]),
    ],
)
def test_contents_are_those_of_the_pipe_by_hand(genome, alignments, tmp_path, *, name, options, by_hand, files):
    folder, scratch = tmp_path / "output", tmp_path / "scratch"
    folder.mkdir()
    scratch.mkdir()
    output = AlignOutput(folder / name, reference=genome, **options)
    written, cpu_seconds = write(output, alignments, scratch)
    assert sorted(written) == sorted(folder.iterdir()) == [folder / f"{name}{suffix}" for suffix in files]
    assert list(scratch.iterdir()) == []
    assert (cpu_seconds > 0) == (name != "out.sam" or output.sort)
    shell(by_hand, tmp_path, alignments)
    lines, wanted = text_of(folder / name).splitlines(), text_of(tmp_path / "hand.sam").splitlines()
    body = [line for line in wanted if not line.startswith("@")]
    assert [line for line in lines if not line.startswith("@")] == body
    assert len(body) == 1000
    assert [line for line in lines if line.startswith(("@PG", "@RG"))] == HEADER.decode().splitlines()[2:]
    if len(files) == 2:
        index = folder / f"{name}{files[1]}"
        assert index.stat().st_mtime_ns >= (folder / name).stat().st_mtime_ns
        assert text_of(folder / name, "-c").strip() == "1000"
        some = subprocess.run(["samtools", "view", "-c", folder / name, "two"], capture_output=True, check=True)
        assert int(some.stdout) == sum("\ttwo\t" in line for line in body)


@pytest.mark.parametrize("form", ["sam", "bam", "cram"])
def test_standard_output(genome, alignments, tmp_path, form):
    with (tmp_path / "out").open("ab") as out, stdout_to(out.fileno()):
        assert write(AlignOutput(form=form, reference=genome, sort=form == "cram"), alignments, tmp_path)[0] == []
    assert len(text_of(tmp_path / "out").splitlines()) == 1004 + (form == "cram")


def test_long_references_have_a_csi_index_and_stale_indexes_go(tmp_path):
    out = tmp_path / "out.bam"
    stale = [out, tmp_path / "out.bam.bai", tmp_path / "out.bai"]
    for file in stale:
        file.write_text("old")
    header = b"@SQ\tSN:wheat\tLN:800000000\n"
    with open_sink(AlignOutput(out, sort=True), scratch=tmp_path) as sink:
        sink.begin(header)
        sink.write(b"r\t0\twheat\t700000000\t60\t4M\t*\t0\t0\tACGT\tIIII\n")
        assert sink.finish() == [out, tmp_path / "out.bam.csi"]
    assert sorted(tmp_path.iterdir()) == [out, tmp_path / "out.bam.csi"]
    assert text_of(out, "-c").strip() == "1"


def test_samtools_runs_on_the_given_pus_only(tmp_path):
    pu = max(os.sched_getaffinity(0))
    with open_sink(AlignOutput(tmp_path / "out.bam", sort=True), scratch=tmp_path, pus=[pu]) as sink:
        sink.begin(HEADER)
        programs = children()
        assert len(programs) == 1
        wait_until(lambda: all(os.sched_getaffinity(pid) == {pu} for pid in programs))
    assert children() == list(tmp_path.iterdir()) == []


def fill_and_kill(output, alignments, folder):
    with open_sink(output, scratch=folder) as sink:
        sink.begin(HEADER)
        for turn in range(200):
            sam.write_all(sink.fd, alignments)
            if turn == 20:
                os.kill(children()[0], signal.SIGKILL)
        sink.finish()


def test_a_killed_program_leaves_nothing(alignments, tmp_path):
    (tmp_path / "out.bam").write_text("as it was")
    output = AlignOutput(tmp_path / "out.bam", sort=True)
    with pytest.raises(RunFailed, match=r"^samtools .*SIGKILL"):
        fill_and_kill(output, alignments, tmp_path)
    assert children() == []
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("out.bam", "as it was")]


def test_text_that_is_no_sam(tmp_path):
    with pytest.raises(RunFailed, match=r"^samtools view .*status 1: .*line 5"):
        write(AlignOutput(tmp_path / "out.bam"), b"nonsense\n", tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["out.sam", "out.bam", "/dev/full"])
def test_a_full_disk(alignments, tmp_path, name):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        with pytest.raises((OSError, RunFailed)) as error:
            write(AlignOutput(tmp_path / name), alignments, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    if name == "out.bam":
        assert str(error.value).startswith("samtools view ended with signal SIGXFSZ")
    else:
        assert error.value.filename == str(tmp_path / name)
    assert children() == list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [{}, {"form": "bam"}, {"sort": True}])
def test_the_reader_of_standard_output_is_gone(alignments, tmp_path, options):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb"), stdout_to(writing), pytest.raises(BrokenPipeError):
        write(AlignOutput(**options), alignments, tmp_path)
    assert children() == list(tmp_path.iterdir()) == []


def test_a_standard_output_that_does_not_block(alignments, tmp_path):
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    file = tmp_path / "in.sam"
    file.write_bytes(HEADER + alignments)
    with os.fdopen(reading, "rb") as reader, stdout_to(writing):
        os.close(writing)
        with (tmp_path / "copy").open("wb") as copy, subprocess.Popen(["cat"], stdin=reader, stdout=copy):
            with open_sink(AlignOutput(), scratch=tmp_path) as sink:
                sink.begin(HEADER)
                sink.write(alignments)
                sink.send([sam.ByteRange(file, len(HEADER), file.stat().st_size)])
                sink.finish()
            os.close(1)
    assert (tmp_path / "copy").read_bytes() == HEADER + alignments * 2


def test_a_pipe_with_a_name(alignments, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    file = tmp_path / "in.sam"
    file.write_bytes(alignments)
    with (
        (tmp_path / "copy").open("wb") as copy,
        subprocess.Popen(["cat", pipe], stdout=copy),
        open_sink(AlignOutput(pipe), scratch=tmp_path) as sink,
    ):
        sink.begin(HEADER)
        sink.send([sam.ByteRange(file, 0, len(alignments))])
        assert sink.finish() == []
    assert (tmp_path / "copy").read_bytes() == HEADER + alignments
    assert pipe.is_fifo()


def test_a_reference_is_checked_and_gets_an_index(genome, tmp_path):
    reference = tmp_path / "ref.fa"
    reference.write_bytes(genome.read_bytes())
    output = AlignOutput(tmp_path / "out.cram", reference=reference)
    output.check()
    assert sorted(f.name for f in tmp_path.iterdir()) == ["ref.fa", "ref.fa.fai"]
    output.check_reference(HEADER)
    with pytest.raises(BadInput, match=r"ref.fa: sequence two .* 9 bases .*20000"):
        output.check_reference(HEADER.replace(b"two\tLN:20000", b"two\tLN:9"))
    with pytest.raises(BadInput, match=r"ref.fa: sequence three "), open_sink(output, scratch=tmp_path) as sink:
        sink.begin(HEADER.replace(b"two", b"three"))
    (tmp_path / "ref.fa.fai").write_text("one\ttwo\n")
    with pytest.raises(BadInput, match=r"ref.fa.fai: "):
        output.check_reference(HEADER)
    reference.write_text("nothing like FASTA\n")
    (tmp_path / "ref.fa.fai").unlink()
    with pytest.raises(BadInput, match=r"ref.fa: `samtools faidx` "):
        output.check()
    assert list(tmp_path.iterdir()) == [reference]


def test_outputs_that_are_refused(tmp_path, stand_in):
    reads = tmp_path / "r.fq"
    reads.write_text("@r\n")
    link = tmp_path / "link.bam"
    link.symlink_to("r.fq")
    for output, reason in (
        (AlignOutput(tmp_path / "out.txt"), "does not end with .sam, .bam or .cram"),
        (AlignOutput(tmp_path / "no" / "out.bam"), "no is not a writable folder"),
        (AlignOutput(tmp_path, form="sam"), "is a folder"),
        (AlignOutput(reads), f"^{reads}: this output would overwrite the input {reads}: "),
        (AlignOutput(link), f"would overwrite the input {tmp_path}/r.fq"),
        (AlignOutput(reads, reference=reads, form="cram"), f"would overwrite the input {tmp_path}/r.fq"),
        (AlignOutput(tmp_path / "out.cram"), "CRAM needs the reference"),
        (AlignOutput(tmp_path / "out.cram", reference=tmp_path / "none.fa"), "cannot be read: No such file"),
        (AlignOutput(tmp_path / "out.bam", threads=0), "too few"),
    ):
        with pytest.raises(BadInput, match=reason):
            output.check(inputs=[reads])
    stand_in("samtools", "echo samtools 1.9")
    with pytest.raises(Missing, match=r"samtools 1.9 .*1.10"):
        AlignOutput(tmp_path / "out.bam").check()
    AlignOutput(tmp_path / "out.sam").check()


def test_a_terminal_gets_text_only():
    leader, terminal = os.openpty()
    with os.fdopen(leader, "rb"), os.fdopen(terminal, "wb"), stdout_to(terminal):
        AlignOutput(sort=True).check()
        with pytest.raises(BadInput, match=r"^BAM .*terminal"):
            AlignOutput(form="bam").check()
