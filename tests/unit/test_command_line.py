# SPDX-License-Identifier: Apache-2.0
"""The users' commands: what they mean, and the command of one instance."""

import getopt
import gzip
import os
import re
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factories.processes import write_program
from firsttouch.cli import run_program
from firsttouch.errors import BadInput
from firsttouch.genomics import aligners
from firsttouch.genomics.command_line import parse, with_options
from firsttouch.genomics.command_syntax import divide
from firsttouch.genomics.index_copies import IndexUse
from firsttouch.genomics.reads import BatchRule
from firsttouch.genomics.recognition import undivided_because

MB = 1_000_000
PIPES = ("/dev/fd/7", "/dev/fd/8")


def understood(text):
    return parse(shlex.split(text))


def instance(text, threads=7):
    """Return the command of one instance, with the names of its pipes as A and B."""
    command = understood(text)
    argv = command.argv(threads=threads, reads=("A", "B")[: command.pipes])
    return shlex.join([Path(argv[0]).name, *argv[1:]])


#: Commands; below each one its lanes, threads and millions of bases of a batch, and the command of an instance.
PIPELINES = r"""
bwa mem -K 100000000 -Y -R '@RG\tID:t.1\tPU:1\tSM:t' -t 12 bwa/genome.fasta a_1.fq.gz a_2.fq.gz
    a_1.fq.gz,a_2.fq.gz | 12 | 100
    bwa mem -K 100000000 -Y -R '@RG\tID:t.1\tPU:1\tSM:t' -t 7 bwa/genome.fasta A B
bwa mem -K 100000000 -p -v 3 -t 16 -Y ref.fasta /dev/stdin -
    /dev/stdin | 16 | 100
    bwa mem -K 100000000 -p -v 3 -t 7 -Y ref.fasta A
bwa mem -t8 ref.fa r.fq
    r.fq | 8 | 80
    bwa mem -K 80000000 -t 7 ref.fa A
bwa mem ref.fa -
    - | 1 | 10
    bwa mem -t 7 -K 10000000 ref.fa A
bwa mem -t 2 -t 4 r a b
    a,b | 4 | 40
    bwa mem -K 40000000 -t 7 -t 7 r A B
bwa mem -MYt4 -- r a b
    a,b | 4 | 40
    bwa mem -K 40000000 -M -Y -t 7 -- r A B
bwa mem r -MY a -o o.sam b -t3
    a,b | 3 | 30
    bwa mem -K 30000000 r -MY A B -t 7
bwa-mem2.avx2 mem -t 3 -I 350,30 r a b
    a,b | 3 | 30
    bwa-mem2.avx2 mem -K 30000000 -t 7 -I 350,30 r A B
bowtie2 -x idx/g -1 a_1.fq.gz -2 a_2.fq.gz --threads 6 --very-sensitive-local --rg-id a --rg SM:a
    a_1.fq.gz,a_2.fq.gz | 6 | 0
    bowtie2-align-s --reorder -x idx/g -1 A -2 B --threads 7 --very-sensitive-local --rg-id a --rg SM:a
bowtie2 -p8 -x i -U a,b c -U - --reorder --mm -S o.sam
    a b c - | 8 | 0
    bowtie2-align-s -p 7 -x i -U A --reorder
bowtie2 -x i --interleaved p -k 3 --xeq
    p | 1 | 0
    bowtie2-align-s -p 7 --reorder -x i --interleaved A -k 3 --xeq
bowtie2 -q i a.fq o.sam
    a.fq | 1 | 0
    bowtie2-align-s -p 7 --reorder -q i -U A
hisat2 -x i -1 a,c -2 b,d --no-spliced --rna-str RF -q --large-index
    a,b c,d | 1 | 0
    hisat2-align-l -p 7 --reorder -x i -1 A -2 B --no-spliced --rna-str RF -q
bowtie --threads 2 --sam -x i -q -k 1 --best --strata a.fq,b.fq hits.sam
    a.fq b.fq | 2 | 0
    bowtie-align-s --reorder --threads 7 --sam -x i -q -k 1 --best --strata A
bowtie -Sp2 i -1 a -2 b
    a,b | 2 | 0
    bowtie-align-s --reorder -S -p 7 i -1 A -2 B
snap-aligner paired idx a.fq.gz b.fq.gz -t 9 -s 50 1000 -C++ -b -o -sam -
    a.fq.gz,b.fq.gz | 9 | 0
    snap-aligner paired idx -pairedInterleavedFastq A -t 7 -s 50 1000 -C++ -b- -map- -o -sam -
snap-aligner single idx -fastq x y.fastq -o out.sam -R '@RG\tID:a' -t 3 -b-
    x y.fastq | 3 | 0
    snap-aligner single idx -fastq A -R '@RG\tID:a' -t 7 -b- -map- -o -sam -
minimap2 -ax map-ont r.mmi a b c
    a b c | 3 | 0
    minimap2 -t 7 -ax map-ont r.mmi A
minimap2 -ax sr -t8 r.mmi a b --MD -o - --frag=yes
    a,b | 8 | 0
    minimap2 -ax sr -t 7 r.mmi A B --MD --frag=yes
minibwa map -K 50m -t 8 i a b
    a,b | 8 | 50
    minibwa map -K 50000000 -t 7 i A B
minibwa map i a b
    a,b | 1 | 100
    minibwa map -t 7 -K 100000000 i A B
bwa-mem3 mem -t 4 --compat=bwa-mem2 -p r -
    - | 4 | 40
    bwa-mem3 mem -K 40000000 -t 7 --compat=bwa-mem2 -p r A
strobealign --use-index -r 150 -t 8 --rg-id a --rg SM:x r.fa a b
    a,b | 8 | 0
    strobealign --use-index -r 150 -t 7 --rg-id a --rg SM:x r.fa A B
gem-mapper -I g.gem --i1 a --i2 b -z -t 4 -v --sam-compact=false -F SAM -o o.sam
    a,b | 4 | 0
    gem-mapper -I g.gem -1 A -2 B -t 7 -v --sam-compact=false -F SAM
"""


@pytest.mark.parametrize("text", re.findall(r"\S.*\n .*\n .*", PIPELINES))
def test_commands_of_pipelines(text):
    command, meaning, argv = (line.strip() for line in text.splitlines())
    lanes, threads, bases = meaning.split(" | ")
    parsed = understood(command)
    assert parsed.whole == ""
    assert [",".join(lane) for lane in parsed.lanes] == lanes.split()
    assert (parsed.threads, parsed.batch.bases) == (int(threads), int(bases) * MB)
    assert instance(command) == argv
    assert shlex.split(parsed.as_typed()) == shlex.split(command) == list(parsed.words)
    assert parsed.output or parsed.unsplit(int(threads)) == list(parsed.words)


#: A command that writes further files, and their names.
WRITTEN = {
    "bowtie2 -x i -U a --un u.fq --met-file m --un-gz=z": "u.fq m z",
    "bowtie2 -x i -1 a -2 b --un-conc u.fq --al-conc-gz c": "u.1.fq u.2.fq c.1 c.2",
    "bowtie2 -x i -1 a -2 b --un-conc u%.fq --metrics-f m": "u1.fq u2.fq m",
    "bowtie2 -x i -1 a -2 b --un-conc-gz .": "..1 ..2 un-conc-mate.1 un-conc-mate.2",
    "hisat2 -x i -1 a -2 b --al-conc-disc .": "..1 ..2 al-conc-disc-mate.1 al-conc-disc-mate.2",
    "bowtie -S -x i -1 a -2 b --max m.d/f.fq": "m.d/f.fq m.d/f_1.fq m.d/f_2.fq",
    "hisat2 -x i -U a --summary-file s --novel-splicesite-outfile n": "s n",
    "minimap2 -ad x.mmi r.fa a": "x.mmi",
    "minimap2 -x sr r.mmi a -o out.paf": "out.paf",
    "bowtie2 -x i -U a --no-unal -S out.sam": "out.sam",
    "bowtie2 -x i -U a -S out.sam": "",
    "gem-mapper -I g.gem -i a --report-file r": "r",
    "bwa mem ref.fa a": "",
}


@pytest.mark.parametrize("command", WRITTEN)
def test_files_that_a_command_writes_beside_its_alignments(command):
    assert sorted(map(str, understood(command).written_files())) == sorted(WRITTEN[command].split())


def test_what_else_a_command_says():
    command = understood("bwa mem -o out.sam -p ref.fa pairs.fq")
    assert (command.index, command.output, command.interleaved) == (Path("ref.fa"), Path("out.sam"), True)
    assert (command.mates, command.pipes, command.on_stdin) == (2, 1, False)
    assert understood("bwa mem -o /dev/stdout ref.fa r.fq").output is None
    assert understood("gem-mapper -I g.gem").lanes == (("-",),)
    assert understood("gem-mapper -I g.gem -i a").batch == BatchRule(records=2, text=4_194_304)
    snap = understood("snap-aligner paired idx a.fq b.fq -o -sam -")
    assert (snap.pipes, snap.mates, snap.on_stdin, snap.output) == (1, 2, True, None)
    assert snap.threads == len(os.sched_getaffinity(0))
    ont = with_options(aligners.aligner("minimap2-map-ont"), ["-Y", "--MD"])
    assert ont.align.single[0][-4:] == ("-Y", "--MD", "{index}.mmi", "{reads}")


def test_the_options_of_a_command_are_those_that_run_takes():
    command = understood(r"bwa mem -Mt4 -R '@RG\tID:a' -o x.sam -- ref.fa a b")
    assert command.own == ("-M", "-R", r"@RG\tID:a")
    assert with_options(aligners.aligner("bwa-mem"), command.own).own == command.own


def test_another_number_of_threads_keeps_the_batches_of_the_command():
    command = understood("bwa mem -Yt 4 ref.fa a b")
    assert command.unsplit() == command.unsplit(4) == list(command.words)
    assert shlex.join(command.unsplit(16)) == "bwa mem -K 40000000 -Y -t 16 ref.fa a b"
    assert shlex.join(understood("bwa mem -Mo out.sam ref.fa a").unsplit()) == "bwa mem -M ref.fa a"
    assert shlex.join(understood("bowtie -S -x i a hits").unsplit(2)) == "bowtie -p 2 -S -x i a"
    command = understood("snap-aligner single i a.fq -t 2 -o out.sam -x")
    assert shlex.join(command.unsplit()) == "snap-aligner single i a.fq -t 2 -x -o -sam -"
    command = understood("bwa mem -o out.sam -t 4 ref.fa a").with_threads(2)
    assert (shlex.join(command.words), command.threads) == ("bwa mem -K 40000000 -o out.sam -t 2 ref.fa a", 2)
    assert understood("bowtie2 -x i -U a").with_threads(3).threads == 3
    # A command that cannot be divided writes its own file.
    assert understood("snap-aligner single i a.fq -so -o out.bam").output is None
    assert shlex.join(understood("bowtie2 -x i -U a --no-unal").unsplit(3)) == "bowtie2 -p 3 -x i -U a --no-unal"


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("bowtie2 -x i -U a --no-unal", "^--no-unal "),
        ("bowtie2 -x i -1 a -2 b --un-conc-gz u.gz", "^--un-conc-gz .*file"),
        ("bowtie2 -x i -U a -u 100", "^-u "),
        ("bowtie2 -x i -1 a -2 b -U c", "several kinds"),
        ("bowtie2 -x i -b a.bam", "^-b .*BAM"),
        ("bowtie2 --version", "^--version "),
        ("bowtie -S -x i a -k 2", "^-k .*primary"),
        ("hisat2 -x i -U a", "^without --no-temp-splicesite, "),
        ("snap-aligner single i a.fq", "^without -o, "),
        ("snap-aligner single i a.fq -o out.bam -so", "^-o out.bam .*SAM; -so "),
        ("snap-aligner paired i a.bam -o -sam -", "a.bam"),
        ("bowtie -x i a", "SAM without -S$"),
        ("minimap2 -x map-ont r.mmi a", "SAM without -a$"),
        ("bwa mem -K 10M ref.fa a", "^-K 10M "),
        ("bwa mem -Z -t 3 ref.fa a", "^-Z .*bwa-mem.toml"),
        ("bwa mem ref.fa a b c", "^'c' .*bwa-mem.toml"),
        ("minimap2 -a r.fa a", "r.fa: .*mmi"),
        ("minimap2 -a --frag=no r.mmi a", "^--frag "),
        ("bwa-mem3 mem --fast r a", "^--fast "),
        ("strobealign --use-index -r 100 r.fa a", "^-r .*150"),
        ("strobealign r.fa a", "^without --use-index, .*; without -r, "),
    ],
)
def test_what_cannot_be_split(command, reason):
    parsed = understood(command)
    assert re.search(reason, parsed.whole)
    assert parsed.unsplit() == shlex.split(command)
    with pytest.raises(ValueError, match=r"^.+$"):
        parsed.argv(threads=2, reads=PIPES)


def test_the_words_behind_an_unknown_option_are_not_guessed():
    parsed = understood("bwa mem -Z 3 -t 4 ref.fa a b")
    assert parsed.whole.startswith("-Z ")
    assert (parsed.index, parsed.lanes, parsed.threads) == (None, (), 4)
    parsed = understood("bowtie2 --frob 3 -x i -U a")
    assert (parsed.index, parsed.lanes) == (Path("i"), (("a",),))
    parsed = understood("snap-aligner single i -frob a.fq -o -sam -")
    assert (parsed.index, parsed.lanes) == (None, ())


def test_a_pipe_beside_the_reads_can_be_read_only_once(tmp_path):
    os.mkfifo(tmp_path / "header")
    assert understood(f"bwa mem -H {tmp_path}/header ref.fa a").whole == f"{tmp_path}/header can be read only once"
    os.mkfifo(tmp_path / "reads")
    assert understood(f"bwa mem ref.fa {tmp_path}/reads").whole == ""


@pytest.mark.parametrize("text", [b">a\nAC\n", gzip.compress(b">a\nAC\n")], ids=["plain", "gzip"])
def test_fasta_is_not_divided(tmp_path, text):
    (tmp_path / "reads").write_bytes(text)
    assert understood(f"bwa mem ref.fa {tmp_path}/reads").whole == f"{tmp_path}/reads is FASTA"
    assert understood("bowtie2 -fx i -U a").whole == "-f is for reads that are not FASTQ"


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("", "no command"),
        ("cat reads.fq", "'cat reads.fq' .*: there are bowtie, bowtie2, bwa mem, "),
        ("bwa index ref.fa", "'bwa index' "),
        ("bwa mem ref.fa", "no reads"),
        ("bwa mem ref.fa - -", "standard input"),
        ("snap-aligner paired i a.fq", "a.fq .*2 "),
        ("bowtie2 -x i -1 a,b -2 c", "2 files .* 1 "),
    ],
)
def test_wrong_commands(command, reason):
    with pytest.raises(BadInput, match=reason) as caught:
        understood(command)
    assert "\n" not in str(caught.value)


def test_mates_in_one_file_stay_together():
    """The programs recognize them by their names."""
    assert understood("minimap2 -ax sr r.mmi a").batch == BatchRule(names=True)
    assert understood("minibwa map i a").batch == BatchRule(bases=100 * MB, records=2, names=True)
    assert understood("minimap2 -ax map-ont r.mmi a").batch == BatchRule(names=True)
    assert understood("minibwa map i a b").batch == BatchRule(bases=100 * MB, names=True)


def test_the_index_is_where_the_program_finds_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old").mkdir()
    for file in ("ref.fa.amb", "new.fa.64.amb", "old/i.1.bt2"):
        (tmp_path / file).touch()
    monkeypatch.setenv("BOWTIE2_INDEXES", str(tmp_path / "old"))
    assert understood("bwa mem ref.fa a").index == Path("ref.fa")
    assert understood("bwa mem new.fa a").index == Path("new.fa.64")
    assert understood("bowtie2 -x i -U a").index == tmp_path / "old" / "i"
    assert understood("bowtie2 -x j -U a").index == Path("j")
    assert understood("gem-mapper -I dir/g.gem").index == Path("dir/g")
    assert understood("minimap2 -a dir/g.mmi a").index == Path("dir/g")
    assert understood("strobealign --use-index -r 150 g.fa a").index == Path("g.fa")
    # The programs index a FASTA file at each start.
    assert understood("minimap2 -a g.fa a").index is None
    assert understood("strobealign g.fa a").index is None


@pytest.mark.parametrize(
    ("command", "divided", "as_it_is"),
    [
        (
            "bowtie2 --mm -p 2 -xidx/g -U r.fq -S o.sam",
            "bowtie2-align-s --mm --reorder -p 7 -x C/g -U A",
            "bowtie2 --mm --mm -p 2 -x C/g -U r.fq",
        ),
        (
            "snap-aligner single idx r.fq -t 2 -map- -o o.sam",
            "snap-aligner single C/g -fastq - -t 7 -map -b- -o -sam -",
            "snap-aligner single C/g r.fq -t 2 -map -o -sam -",
        ),
        ("minimap2 -at2 idx/g.mmi r.fq", "minimap2 -a -t 7 C/g.mmi A", "minimap2 -at2 C/g.mmi r.fq"),
        (
            "minibwa map -K 9 -t 2 -- idx/g r.fq",
            "minibwa map --mmap -K 9 -t 7 -- C/g A",
            "minibwa map --mmap -K 9 -t 2 -- C/g r.fq",
        ),
        ("bwa mem -t 2 idx/g r.fq", "bwa mem -K 20000000 -t 7 C/g A", "bwa mem -t 2 C/g r.fq"),
    ],
)
def test_an_instance_is_given_a_copy_of_the_index(command, divided, as_it_is):
    parsed = understood(command)
    use = IndexUse(Path("C/g"), maps=True)
    reads = ["-"] if parsed.on_stdin else ["A"]
    argv = parsed.argv(threads=7, reads=reads, use=use)
    assert sorted([Path(argv[0]).name, *argv[1:]]) == sorted(divided.split())
    assert parsed.unsplit(use=use) == as_it_is.split()
    assert parsed.index_name in {"idx/g", "idx", "idx/g.mmi"}
    # The user's own index stays where it is loaded before.
    assert parsed.unsplit(use=IndexUse(entering=("nsenter",))) == parsed.unsplit()


def test_the_program_is_the_one_that_the_command_names(tmp_path):
    write_program(tmp_path / "bwa", "echo Version: 9.9 >&2")
    command = understood(f"{tmp_path}/bwa mem ref.fa a")
    assert command.aligner.version() == "9.9"
    assert command.argv(threads=1, reads=["A"])[0] == f"{tmp_path}/bwa"
    (tmp_path / "bin").mkdir()
    for name in ("bowtie2", "bowtie2-align-s"):
        (tmp_path / "bin" / name).touch(0o755)
    (tmp_path / "bowtie2").symlink_to(tmp_path / "bin" / "bowtie2")
    command = understood(f"{tmp_path}/bowtie2 -x i -U a")
    assert command.argv(threads=1, reads=["A"])[0] == f"{tmp_path}/bin/bowtie2-align-s"


# ----------------------------------------------------------------------
# Options for the aligner of `firsttouch run`


@pytest.mark.parametrize(
    ("name", "own", "paired"),
    [
        ("bwa-mem", r"-Y -R '@RG\tID:{a}'", r"bwa mem -v 1 -t 7 -K 99 -Y -R '@RG\tID:{a}' i A B"),
        ("bowtie", "-X 500 --best", "bowtie-align-s -p 7 -S --reorder -X 1000 -x i -1 A -2 B -X 500 --best"),
        (
            "snap",
            "-C++ -s 1 9",
            "snap-aligner paired i -pairedInterleavedFastq - -t 7 -b- -map- -o -sam - -C++ -s 1 9",
        ),
    ],
)
def test_own_options_in_the_commands_of_an_aligner(name, own, paired):
    aligner = with_options(aligners.aligner(name), shlex.split(own))
    template = aligner.align.paired[0]
    argv = aligner.argv(template, index=Path("i"), reads=["A", "B"], threads=7, batch_bases=99, scratch=Path())
    assert shlex.join(argv) == paired
    assert (aligner.whole, aligner.label) == ("", f"{name} {shlex.join(shlex.split(own))}")
    assert with_options(aligner, []) is aligner
    assert aligners.aligner(name).label == name


@pytest.mark.parametrize(
    ("name", "own", "reason"),
    [
        ("bwa-mem", "-t 8", "-t .*--threads"),
        ("bwa-mem", "-p", "-p .*--interleaved"),
        ("minimap2", "-x map-ont", "-x .*minimap2"),
        ("bwa-mem", "-Y ref.fa", "'ref.fa' .*bwa-mem"),
        ("bowtie2", "--ind x", "--index .*--index"),
        ("bowtie2", "--un x", "--un .*script"),
        ("bwa-aln", "-k 2", "options .*bwa-aln"),
    ],
)
def test_options_that_are_no_own_ones(name, own, reason):
    with pytest.raises(BadInput, match=f"^{reason}"):
        with_options(aligners.aligner(name), shlex.split(own))


# ----------------------------------------------------------------------
# Generated commands, against Python's implementation of the same parser

VALUES = st.sampled_from(["1", "-5", "a=b", "@RG\\tID:x y", "--", "-t", "", "x.fq", "-"])


@st.composite
def commands(draw):
    """Draw an aligner with getopt, options that it knows in any spelling, and its reads."""
    name = draw(st.sampled_from(["bwa-mem", "bwa-mem2", "bowtie2", "hisat2", "bowtie"]))
    syntax = aligners.aligner(name).command
    reading = {
        option for role in ("single", "mates1", "mates2", "interleaved") for option in syntax.roles.get(role, ())
    }
    plain = sorted(
        o for o in syntax.arity if o not in {*syntax.whole, *reading} and not syntax.has_role(o, "index", "output")
    )
    words, flags = [], ""
    for option in draw(st.lists(st.sampled_from(plain), max_size=8)):
        number = syntax.has_role(option, "threads", "batch")
        value = str(draw(st.integers(1, 64))) if number else draw(VALUES)
        if option.startswith("--"):
            words += (
                [[option]]
                if not syntax.arity[option]
                else draw(st.sampled_from([[[f"{option}={value}"]], [[option, value]]]))
            )
        elif not syntax.arity[option]:
            flags += option[1]
            words += [[option]] if draw(st.booleans()) else []
        else:
            attached = draw(st.booleans()) and value
            cluster = draw(st.sampled_from(["", flags]))
            words.append([f"-{cluster}{option[1]}{value}"] if attached else [f"-{cluster}{option[1]}", value])
    index = [["ref"]] if name.startswith("bwa") else [["-x", "ref"]]
    reads = draw(st.sampled_from([["r1"], ["r1", "r2"]]))
    if not name.startswith("bwa") and len(reads) == 2:
        reads = ["-1", "r1", "-2", "r2"]
    if "sam" in syntax.roles:
        words.append(["-S"])
    if syntax.needs:
        words.append(["--no-temp-splicesite"])
    at = draw(st.integers(0, len(words)))
    parts = [*words[:at], *index, *words[at:], reads]
    return name, [*syntax.begins[0], *(word for part in parts for word in part)]


def by_getopt(syntax, words):
    """Return options with values, and the operands, as Python's getopt divides them."""
    short = "".join(o[1] + ":" * (n or 0) for o, n in syntax.arity.items() if not o.startswith("--"))
    long = [o[2:] + "=" * (n or 0) for o, n in syntax.arity.items() if o.startswith("--")]
    return getopt.gnu_getopt(words, short, long)


@given(commands())
def test_every_option_that_is_not_replaced_stays_in_its_order(drawn):
    name, words = drawn
    syntax = aligners.aligner(name).command
    first = syntax.length_of_call(words)
    options, operands = by_getopt(syntax, words[first:])
    items = divide(syntax, words, first).items
    assert [(a.name, "".join(a.values)) for a in items if a.name] == options
    assert [a.values[0] for a in items if not a.name] == operands
    command = parse(words)
    assert command.whole == ""
    argv = command.argv(threads=1234, reads=PIPES[: command.pipes])
    after, _ = by_getopt(syntax, argv[first:])
    touched = [
        o
        for role in (
            *("threads", "batch", "removes", "large", "bam_pairs", "single", "mates1", "mates2", "interleaved"),
            "summary",
        )
        for o in syntax.roles.get(role, ())
    ]
    touched += [*syntax.adds, "-1", "-2"]
    assert [o for o in after if o[0] not in touched] == [o for o in options if o[0] not in touched]
    numbers = {value for option, value in after if syntax.has_role(option, "threads")}
    assert numbers == {"1234"}
    assert {value for option, value in after if syntax.has_role(option, "batch")} <= {str(command.batch.bases)}
    assert set(PIPES[: command.pipes]) <= set(argv)
    assert {"r1", "r2"}.isdisjoint(argv)


@given(
    st.lists(
        st.sampled_from(
            ["-t", "4", "-x", "i", "-U", "a", "-o", "-sam", "-", "--", "-1", "b", "-2", "-p", "=", "-Z"]
        )
    )
)
def test_any_words_are_understood_or_refused(words):
    for begin in (["bwa", "mem"], ["bowtie2"], ["snap-aligner", "paired"], ["gem-mapper"], ["bowtie"]):
        try:
            command = parse([*begin, *words])
        except BadInput:
            continue
        assert command.output or command.unsplit() == [*begin, *words]
        if not command.whole:
            assert command.argv(threads=3, reads=PIPES[: command.pipes])


#: Commands that run an aligner, and why its reads are not divided (None: they run none).
UNDIVIDED = {
    "nice bwa mem -t 4 ref r.fq": r"nice .* `bwa mem \.\.\.`",
    "env A=b /opt/bin/bowtie2 -x i -U r.fq": r"env .* `/opt/bin/bowtie2 -x \.\.\.`",
    "apptainer exec i.sif minimap2 -a i.mmi r.fq": r"apptainer .* `minimap2 -a \.\.\.`",
    "bash -c 'set -e; bwa mem ref r.fq | gzip'": r"bash .* `bwa mem \.\.\.`",
    "/sw/bwa-0.7.17 mem ref r.fq": "/sw/bwa-0.7.17 .* bwa,",
    "nice -n 5 env A=1 ./bwa-0.7.17 mem ref r.fq": r"\./bwa-0.7.17 .* bwa,",
    "minimap2_v2.28 -a i.mmi r.fq": "minimap2_v2.28 .* minimap2,",
    "./bwa-copy mem ref r.fq": r"\./bwa-copy is not known as an aligner; under the name bwa,",
    "nice ./bwa.new mem ref r.fq": r"\./bwa\.new is not known .* bwa,",
    "bowtie2-build ref i": None,
    "./bwa-copy index ref": None,
    "samtools sort minimap2-2.28.bam": None,
}


def test_a_link_to_an_aligner_is_said_to_be_undivided(tmp_path):
    link = tmp_path / "mine"
    link.symlink_to("/opt/bin/bwa-0.7.17")
    assert re.match(f"{link} .* bwa,", undivided_because([str(link), "mem", "ref", "r.fq"]))
    assert not undivided_because([str(link), "index", "ref"])


def test_why_an_aligner_is_not_divided_under_a_scenario_of_two_instances(run_cli):
    status, _, err = run_cli("run", "2x1-bound", "--", "nice", "bwa", "mem", "ref", "r.fq")
    assert (status, err.startswith("note: nice runs one process of `bwa mem ...`")) == (2, True)


@pytest.mark.parametrize("command", UNDIVIDED)
def test_why_an_aligner_is_not_divided(command, monkeypatch, run_cli):
    words, expected = shlex.split(command), UNDIVIDED[command]
    assert re.match(expected, undivided_because(words)) if expected else not undivided_because(words)
    monkeypatch.setattr(run_program, "run", lambda args: print(*args.program) or 0)
    status, out, err = run_cli("run", "--", *words)
    assert (status, out.split()) == (0, " ".join(words).split())
    assert bool(re.match(f"note: {expected}", err)) == bool(expected)
