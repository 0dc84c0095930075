# SPDX-License-Identifier: Apache-2.0
"""Every aligner has the properties of its data file: the real programs read whole and divided input from pipes."""

import contextlib
import itertools
import os
import shlex
import subprocess
import threading
from pathlib import Path

import pytest
from msgspec import structs

from factories import genomes
from factories.genomes import aligns_pairs, built, has_large_batches, large_batch, named
from firsttouch.errors import Missing
from firsttouch.genomics.aligners import aligners, mates_placeholder
from firsttouch.genomics.command_line import parse
from firsttouch.genomics.sam import unambiguous_fields

BATCH_BASES = 20_000
TIMEOUT = 100


@pytest.fixture(scope="module", params=named(aligns_pairs))
def program(request):
    """Returns each aligner whose program is installed."""
    return genomes.installed(request.param)


@pytest.fixture(scope="module")
def phage(tmp_path_factory):
    """Returns the reference and the first 400 pairs of the dataset ``lambda``, as records of each mate."""
    return genomes.phage(tmp_path_factory.mktemp("data"), 400)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Returns a reference with many equally good places, and 500 pairs of which half are real."""
    return genomes.mixed(tmp_path_factory.mktemp("mixed"), 250)


def feed(sink, records):
    with contextlib.suppress(BrokenPipeError), os.fdopen(sink, "wb") as out:
        out.writelines(records)


def align(program, prefix, mates, scratch, threads=1):
    """Return the alignment lines of records that every step of *program* reads from separate pipes."""
    scratch.mkdir(exist_ok=True)
    out = b""
    for step in program.steps(len(mates)):
        names, ends, feeders, stdin = [None] * len(mates), [], [], subprocess.DEVNULL
        wanted = [mates[m] for m in mates_placeholder(step)]
        streams = [itertools.chain(*zip(*wanted, strict=True))] if program.on_stdin(step) else wanted
        for place, stream in zip(mates_placeholder(step), streams, strict=False):
            source, sink = os.pipe()
            ends.append(source)
            if program.on_stdin(step):
                stdin = source
            else:
                names[place] = f"/dev/fd/{source}"
            feeders.append(threading.Thread(target=feed, args=(sink, stream), daemon=True))
        argv = program.argv(
            step, index=prefix, reads=names, threads=threads, batch_bases=BATCH_BASES, scratch=scratch
        )
        for feeder in feeders:
            feeder.start()
        try:
            done = subprocess.run(
                argv, stdin=stdin, pass_fds=ends, capture_output=True, timeout=TIMEOUT, check=False
            )
        finally:
            for end in ends:
                os.close(end)
            for feeder in feeders:
                feeder.join()
        assert done.returncode == 0, (argv, done.stderr[-500:])
        out = done.stdout
    return [line for line in out.splitlines(keepends=True) if line[3:4] != b"\t" or line[:1] != b"@"]


def starts(program, mates):
    """Return the record numbers at which batches of *program* begin, as :class:`Aligner` defines them."""
    firsts, records, bases, text = [0], 0, 0, 0
    wanted = BATCH_BASES if program.batch.bases else 0
    for number, together in enumerate(zip(*mates, strict=True), start=1):
        records += 1
        bases += sum(len(r.split(b"\n")[1]) for r in together) if wanted else 0
        text += len(together[0])
        if bases >= wanted and text >= program.batch.text and records % (program.batch.records or 1) == 0:
            firsts.append(number)
            records = bases = text = 0
    return [n for n in firsts if n < len(mates[0])]


def in_parts(program, prefix, mates, cut, scratch):
    halves = ([m[:cut] for m in mates], [m[cut:] for m in mates])
    return [line for half in halves for line in align(program, prefix, half, scratch)]


def kept(program, lines, mates):
    if program.align.same == "exact":
        return lines
    return list(unambiguous_fields(lines, mates, scores_only=program.align.same == "scored"))


def primary(lines):
    """Return the names of the primary records; some programs omit /1 and /2."""
    named = [line.split(b"\t", 2)[:2] for line in lines]
    return [name.removesuffix(b"/1").removesuffix(b"/2") for name, flag in named if not int(flag) & 0x900]


def names_of(mates):
    return [
        r.split()[0][1:].removesuffix(b"/1").removesuffix(b"/2") for two in zip(*mates, strict=True) for r in two
    ]


@pytest.mark.parametrize("count", [1, 2])
def test_every_read_has_its_record_whatever_the_threads(program, phage, tmp_path, tmp_path_factory, count):
    reference, mates = phage[0], phage[1][:count]
    prefix = built(program, reference, tmp_path_factory)
    assert program.index_bytes(prefix) > 48_502 / 4
    alone = align(program, prefix, mates, tmp_path)
    assert primary(alone) == names_of(mates)
    assert sum(not int(line.split(b"\t", 2)[1]) & 0x4 for line in alone) > 0.4 * len(names_of(mates))
    two = align(program, prefix, mates, tmp_path, threads=2)
    assert sorted(two) == sorted(alone)
    assert not program.align.in_order or two == alone


@pytest.mark.parametrize(
    "program", named(lambda program: program.align.paired and not has_large_batches(program)), indirect=True
)
@pytest.mark.parametrize("count", [1, 2])
def test_parts_that_begin_with_a_batch_give_the_whole(program, mixed, count, tmp_path, tmp_path_factory):
    reference, mates = mixed[0], mixed[1][:count]
    begin = starts(program, mates)
    assert len(begin) >= 2
    prefix = built(program, reference, tmp_path_factory)
    whole = align(program, prefix, mates, tmp_path)
    parts = in_parts(program, prefix, mates, begin[len(begin) // 2], tmp_path)
    assert kept(program, parts, count) == kept(program, whole, count)
    # An aligner declared to choose among equally good places must do so; otherwise its declaration is too weak.
    assert (parts == whole) == (program.align.same == "exact")


@pytest.mark.parametrize("program", named(has_large_batches), indirect=True)
def test_batches_that_cannot_be_made_smaller_begin_where_the_file_says(program, phage, tmp_path, tmp_path_factory):
    """The mates of the second batch are further apart, and the aligner estimates their distance."""
    reference, _ = phage
    genome = "".join(reference.read_text().split("\n")[1:])
    near, far = large_batch(program, genome, 2000)
    begin = (*starts(program, near), len(near[0]))[1]
    mates = [[*n[:begin], *f] for n, f in zip(near, far, strict=True)]
    assert starts(program, far) == [0]
    prefix = built(program, reference, tmp_path_factory)
    # All reads have one best position, so that chance changes no quality, and scores alone show no distances.
    strict = (
        structs.replace(program, align=structs.replace(program.align, same="settled"))
        if program.align.same == "scored"
        else program
    )

    def aligned(start, threads=1):
        lines = align(program, prefix, [m[start:] for m in mates], tmp_path, threads=threads)
        # Those of pairs without a base are the most, and before all others.
        return kept(strict, [line for line in lines if line[:1] != b"n"], 2)

    whole, second, other = aligned(0, threads=2), aligned(begin), aligned(begin - 9000)
    equal = whole[-len(second) :] == second, whole[-len(other) :] == other
    assert equal == (True, False)


ODD = {
    "one base": ("A", "C"),
    "no base called": ("N" * 100, "N" * 80),
    "300 bases": ("ACGTTGCATT" * 30, "GGCATCGATC" * 30),
    "of unequal length": ("GGCATCGATCAAGCTTACCG" * 5, "A"),
}


@pytest.mark.parametrize("count", [1, 2])
def test_odd_reads_have_their_records_too(program, phage, tmp_path, tmp_path_factory, count):
    prefix = built(program, phage[0], tmp_path_factory)
    mates = [m[:20] for m in phage[1][:count]]
    for number, odd in enumerate(ODD.values()):
        for mate, bases in zip(mates, odd, strict=False):
            mate.insert(3 * number, f"@odd{number}\n{bases}\n+\n{'I' * len(bases)}\n".encode())
    assert primary(align(program, prefix, mates, tmp_path)) == names_of(mates)


@pytest.mark.parametrize("program", named(lambda program: program.index.large), indirect=True)
def test_a_large_index_works_as_well(program, phage, tmp_path, tmp_path_factory):
    reference, mates = phage
    argv = (program.index.argv[0], "--large-index", *program.index.argv[1:])
    forced = structs.replace(program, index=structs.replace(program.index, argv=argv))
    forced.build_index(reference, tmp_path / "index", tmp_path / "log")
    small = built(program, reference, tmp_path_factory)
    assert program.index_bytes(tmp_path / "index") > program.index_bytes(small)
    mates = [m[:100] for m in mates]
    scratch = tmp_path / "scratch"
    assert align(program, tmp_path / "index", mates, scratch) == align(program, small, mates, scratch)


# ----------------------------------------------------------------------
# The table [command]

#: Commands of users, with their own options.
COMMANDS = {
    "bwa-mem": (
        r"bwa mem -t2 -K 20000 -YC -R '@RG\tID:a\tSM:b' {index} {r1} {r2}",
        "bwa mem -aM {index} -p {both} -o {out}",
        "bwa mem -t 2 -5 {index} {r1}",
    ),
    "bwa-mem2": (r"bwa-mem2 mem -t2 -YR '@RG\tID:a\tSM:b' {index} {r1} {r2}", "bwa-mem2 mem -p {index} {both}"),
    "bowtie2": (
        "bowtie2 -p 2 --very-sensitive-local --rg-id a --rg SM:b -x {index} -1 {r1} -2 {r2} --xeq",
        "bowtie2 -a -x {index} --interleaved {both} -S {out}",
        "bowtie2 --reorder -k 3 -p2 -x {index} -U {r1} --mm",
        "bowtie2 -x {index} {r1} {out}",
    ),
    "bowtie": (
        "bowtie -Sp2 -X 800 --best {index} -1 {r1} -2 {r2}",
        "bowtie --sam -X 800 -x {index} --interleaved {both} {out}",
        "bowtie -S -v 3 -x {index} {r1} {out} --sam-RG ID:a",
    ),
    "hisat2": (
        "hisat2 -p 2 --no-temp-splicesite --rna-strandness RF -x {index} -1 {r1} -2 {r2} -S {out} --new-summary",
        "hisat2 -k 3 --no-spliced-alignment -x {index} -U {r1}",
    ),
    "hisat": ("hisat -p2 --no-temp-splicesite -x {index} -1 {r1} -2 {r2} -S {out}",),
    "snap": (
        r"snap-aligner paired {index} {r1} {r2} -t 2 -b -om 1 -D 3 -omax 5 -R '@RG\tID:a' -C++ -o -sam -",
        "snap-aligner paired {index} -pairedInterleavedFastq {both} -s 0 900 -= -o {out}",
        "snap-aligner single {index} -fastq {r1} -o -sam {out} -t 1",
    ),
    "minimap2": (
        r"minimap2 -ax sr -t2 -YR '@RG\tID:a\tSM:b' --MD --secondary=yes {index}.mmi {r1} {r2}",
        "minimap2 -a -x sr {index}.mmi {both} -o {out}",
        "minimap2 --eqx -at 2 {index}.mmi {r1}",
    ),
    "minibwa": (
        r"minibwa map -t2 -K 20k -Y --xa=9 -R '@RG\tID:a\tSM:b' {index} {r1} {r2}",
        "minibwa map -b MD {index} {both} -o {out}",
        "minibwa map -y --outn=3 {index} {r1}",
    ),
    "bwa-mem3": (
        r"bwa-mem3 mem -t2 -K 20000 -YR '@RG\tID:a\tSM:b' --compat=bwa-mem2 {index} {r1} {r2}",
        "bwa-mem3 mem -aM {index} -p {both} -o {out}",
    ),
    "strobealign": (
        "strobealign --use-index -r 150 -t 2 --rg-id a --rg SM:b --eqx {index} {r1} {r2}",
        "strobealign --use-index -r 150 --interleaved -N 3 {index} {both} -o {out}",
    ),
    "gem3": ("gem-mapper -I {index}.gem -1 {r1} -2 {r2} -t 2 -M 3", "gem-mapper -I {index}.gem -i {r1} -o {out}"),
}


def alignments(argv, out, stdin=None):
    """Return the sorted alignments that a command writes to *out* or to standard output."""
    out.unlink(missing_ok=True)
    with Path(stdin or os.devnull).open("rb") as source:
        done = subprocess.run(argv, stdin=source, capture_output=True, timeout=TIMEOUT, check=True)
    text = out.read_bytes() if out.exists() else done.stdout
    return sorted(line for line in text.splitlines() if not line.startswith(b"@"))


def test_a_command_and_the_command_of_its_instance_give_the_same_alignments(
    program, phage, tmp_path, tmp_path_factory
):
    reference, mates = phage
    mates = [mate[:100] for mate in mates]
    texts = {
        "r1.fq": mates[0],
        "r2.fq": mates[1],
        "both.fq": [record for pair in zip(*mates, strict=True) for record in pair],
    }
    for name, text in texts.items():
        (tmp_path / name).write_bytes(b"".join(text))
    names = {"r1": "r1.fq", "r2": "r2.fq", "both": "both.fq", "out": "out.sam"}
    names = {key: str(tmp_path / name) for key, name in names.items()}
    prefix = built(program, reference, tmp_path_factory)
    for template in COMMANDS.get(program.name, ()):
        command = parse([word.format(index=prefix, **names) for word in shlex.split(template)])
        assert (command.whole, command.index) == ("", prefix)
        expected = alignments(command.words, tmp_path / "out.sam")
        assert alignments(command.unsplit(), tmp_path / "none") == expected
        assert len(expected) >= 100
        inputs = list(command.lanes[0])
        if command.on_stdin:
            stdin = names["both"] if command.mates == 2 else inputs[0]
            own = alignments(command.argv(threads=1, reads=["-"]), tmp_path / "out.sam", stdin)
        else:
            own = alignments(command.argv(threads=1, reads=inputs), tmp_path / "out.sam")
        assert own == expected


@pytest.mark.parametrize("name", ["bowtie2", "hisat2"])
def test_the_options_of_a_program_that_lists_them_are_in_its_table(name):
    try:
        aligners()[name].version()
    except Missing as error:
        pytest.skip(str(error))
    argv = [f"{name}-align-s", "--wrapper", "basic-0", "--arg-desc"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=TIMEOUT)
    listed = {("-" if len(o) == 1 else "--") + o: int(n) for o, n in map(str.split, done.stdout.splitlines())}
    del listed["-b"]  # the script gives it a value
    arity = aligners()[name].command.arity
    assert {option: arity.get(option) for option in listed} == listed
