# SPDX-License-Identifier: Apache-2.0
"""Outputs that would destroy something: inputs, files of others, devices and pipes; and invalid places."""

import atexit
import contextlib
import functools
import os
import random
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from firsttouch import cli
from firsttouch.errors import BadInput
from firsttouch.genomics import command_line
from hostile import VM, Case

needs_bwa = pytest.mark.skipif(shutil.which("bwa") is None, reason="bwa is not on PATH")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make devices")


@functools.cache
def indexed() -> Path:
    """Return a folder with reads that map and their index."""
    folder = Path(tempfile.mkdtemp(prefix="hostile-"))
    atexit.register(shutil.rmtree, folder)
    rng = random.Random(5)  # noqa: S311
    bases = "".join(rng.choices("ACGT", k=3000))
    (folder / "g.fa").write_text(f">g\n{bases}\n")
    (folder / "i").mkdir()
    subprocess.run(["bwa", "index", "-p", "i/index", "g.fa"], cwd=folder, capture_output=True, check=True)
    starts = range(0, 2000, 100)
    for file, shift in (("r.fq", 0), ("r2.fq", 200)):
        reads = [f"@r{s}\n{bases[s + shift : s + shift + 80]}\n+\n{'I' * 80}\n" for s in starts]
        (folder / file).write_text("".join(reads))
    return folder


def aligning(folder: Path) -> None:
    """Make reads, their index, links to both, and out.sam of an earlier run."""
    shutil.copytree(indexed(), folder, dirs_exist_ok=True)
    (folder / "link.fq").symlink_to("r.fq")
    os.link(folder / "r.fq", folder / "hard.fq")
    os.link(folder / "i" / "index.sa", folder / "hard.sa")
    (folder / "precious.json").write_text('{"precious": 1}')
    (folder / "out.sam").write_text("an earlier run's\n")
    (folder / "sub").mkdir()


def device(folder: Path) -> None:
    aligning(folder)
    os.mknod(folder / "null", 0o666 | 0o020000, os.makedev(1, 3))
    (folder / "to-null").symlink_to("null")


RUN = ["run", "1x-default", "--aligner=bwa-mem", "--index=i/index", "--reads=r.fq"]
ADVISE = ["advise", "--aligner=bwa-mem", "--index=i/index", "--reads=r.fq", "--budget=1"]
INPUT, TWICE = "this output would overwrite the input", "this output is named twice"
OTHER = "its first line is not a record"

ALIGNING = [
    Case("the reads", [*RUN, "-o", "r.fq"], 2, INPUT, aligning),
    Case("the reads by a link", [*RUN, "-o", "link.fq"], 2, INPUT, aligning),
    Case("the reads by a hard link", [*RUN, "-o", "hard.fq"], 2, INPUT, aligning),
    Case("the mates", [*RUN, "--reads2=r2.fq", "-o", "r2.fq"], 2, INPUT, aligning),
    Case("the index", [*RUN, "-o", "i/index.bwt"], 2, INPUT, aligning),
    Case("the index by a hard link", [*RUN, "-o", "hard.sa"], 2, INPUT, aligning),
    Case("records over the reads", [*RUN, "-o", "o.sam", "--records=r.fq"], 2, OTHER, aligning),
    Case("records over the index", [*RUN, "-o", "o.sam", "--records=i/index.pac"], 2, OTHER, aligning),
    Case("records over the output", [*RUN, "-o", "o.sam", "--records=o.sam"], 2, TWICE, aligning),
    Case("records into others' file", [*RUN, "-o", "o.sam", "--records=precious.json"], 2, OTHER, aligning),
    Case("records into a folder", [*RUN, "-o", "o.sam", "--records=."], 2, "only be appended to a file", aligning),
    Case("records below a file", [*RUN, "-o", "o.sam", "--records=r.fq/x"], 2, "not a writable folder", aligning),
    Case("a folder", [*RUN, "-o", "sub"], 2, "it is a folder", aligning),
    Case("an empty name", [*RUN, "-o", ""], 2, "argument -o/--output: '' is not a path", aligning),
    Case("no such device", [*RUN, "-o", "/dev/firsttouch-nothing"], 2, "no such device", aligning),
    Case("an earlier output is replaced", [*RUN, "-o", "out.sam"], 0, "out.sam", aligning, changes=["out.sam"]),
    Case("standard output", [*RUN, "-o", "/dev/stdout"], 0, r"@SQ\tSN:g", aligning, process=True),
]  # fmt: skip

DEVICES = [
    Case("a device", [*RUN, "-o", "null"], 0, "", device),
    Case("a link to a device", [*RUN, "-o", "to-null"], 0, "", device),
    Case(
        "records into a device", [*RUN, "-o", "o.sam", "--records=null"], 2, "only be appended to a file", device
    ),
]


BASELINE = ["baseline", "--system=lab"]


def stored(folder: Path) -> None:
    """Make a file of records, links to it, a folder that holds it, and a file without records."""
    text = VM.read_text(encoding="utf-8")
    (folder / "r.jsonl").write_text(text)
    (folder / "results").mkdir()
    (folder / "results" / "records.jsonl").write_text(text)
    os.link(folder / "results" / "records.jsonl", folder / "hard.jsonl")
    (folder / "precious.json").write_text('{"precious": 1}')
    (folder / "binary").write_bytes(bytes(range(256)) * 10)
    (folder / "empty").mkdir()
    os.mkfifo(folder / "pipe")


OTHERS = [
    Case("baseline over its records", [*BASELINE, "r.jsonl", "-o", "r.jsonl"], 2, INPUT, stored),
    Case("baseline over a folder's records", [*BASELINE, "results", "-o", "hard.jsonl"], 2, INPUT, stored),
    Case("report over its records", ["report", "results", "-o", "results"], 2, "holds an input", stored),
    Case("report around its records", ["report", "r.jsonl", "-o", "."], 2, "holds an input", stored),
    Case("measure into others' file", ["measure", "topology", "--records=precious.json"], 2, OTHER, stored),
    Case("measure into a folder", ["measure", "topology", "--records=empty"], 2, "appended to a file", stored),
    Case("measure into a pipe", ["measure", "topology", "--records=pipe"], 2, "appended to a file", stored),
    Case("no aligner of two lines", ["plan", "--aligner=a\nb"], 2, r"a\\nb", stored),
]  # fmt: skip


def a_run(folder: Path) -> None:
    """Make all kinds of files that a run reads."""
    aligning(folder)
    shutil.copy(shutil.which("bwa") or "", folder / "bwa")
    written = ("g.fa.fai", "g.dict", "other.dict", "r.bam", "r.bam.bai", "r.fq.gz.gzi", "r.fq.gz")
    for name in ("header.txt", "1,2.fq", "other.fa", "other.fa.fai", *written):
        (folder / name).write_text("@CO\tx\n")
    for suffix in (".amb", ".ann", ".bwt", ".pac", ".sa"):
        shutil.copy(folder / "i" / f"index{suffix}", folder / f"g.fa{suffix}")


ALIGN = ["run", "1x-default", "--share-host", "-O", "sam"]
MEM, BOWTIE2 = [*ALIGN, "--", "bwa", "mem"], [*ALIGN, "--", "bowtie2", "-x", "i/index"]
BWA = ["--", "bwa", "mem", "-t", "1", "i/index", "r.fq"]
MANY = ["--output-threads=1000000", "-o", "o.sam"]
ALIGNING += [
    Case("more threads than PUs", [*ALIGN, *MANY, *BWA], 2, r"1000000: this process may use \d+ PUs", aligning)
]
#: The input of a run -> the command without its output.
READ = {
    "the reference of run": ("g.fa", [*RUN[:3], "--index=g.fa", "--reads=r.fq"]),
    "the reference of align": ("g.fa", [*MEM, "g.fa", "r.fq"]),
    "an option's file": ("header.txt", [*MEM, "-H", "header.txt", "-R", "x" * 5000, "i/index", "r.fq"]),
    "a file in an option's word": ("header.txt", [*MEM, "-Hheader.txt", "i/index", "r.fq"]),
    "one of a list": ("r2.fq", [*BOWTIE2, "-U", "r.fq,r2.fq"]),
    "a file behind =": ("r2.fq", [*BOWTIE2, "-U", "r.fq", "--un-gz=r2.fq"]),
    "a file with a comma": ("1,2.fq", [*MEM, "i/index", "1,2.fq"]),
    "the program": ("bwa", [*ALIGN, "--", "./bwa", "mem", "i/index", "r.fq"]),
    "the reference of CRAM": ("other.fa", [*ALIGN[:3], "-O", "cram", "--reference=other.fa", *BWA]),
    "the reads, sorted": ("r.fq", [*ALIGN[:3], "-O", "bam", "--sort", *BWA]),
    "the index of the reference of align": ("g.fa.fai", [*MEM, "g.fa", "r.fq"]),
    "the dictionary of the reference of align": ("g.dict", [*MEM, "g.fa", "r.fq"]),
    "the index of a reference of minimap2": ("g.fa.fai", [*ALIGN, "--", "minimap2", "-a", "g.fa", "r.fq"]),
    "the index of reads": ("r.bam.bai", [*BOWTIE2, "-b", "r.bam"]),
    "the index of packed reads": ("r.fq.gz.gzi", [*MEM, "i/index", "r.fq.gz"]),
}  # fmt: skip
REFERENCE = [*ALIGN[:3], "--reference=other.fa", *BOWTIE2[5:]]
BY_BOWTIE2 = [*RUN[:2], "--aligner=bowtie2", *RUN[3:]]
MINIMAP2, HISAT2 = [*ALIGN, "--", "minimap2"], [*ALIGN, "--", "hisat2", "-x", "i/index"]
PAIRED = ["-1", "r.fq", "-2", "r2.fq"]
#: A further file of a program, which must not become the output -> the command, with {} for the file.
WRITTEN = {
    "the reads by --un": ("r.fq", [*BOWTIE2, "-U", "r.fq", "--un", "{}"]),
    "the mates by --al-gz": ("r2.fq", [*BOWTIE2, *PAIRED, "--al-gz", "{}"]),
    "the reads by an option that is not written out": ("r.fq", [*BOWTIE2, "-U", "r.fq", "--metrics-f", "{}"]),
    "the reads by --summary-file": ("r.fq", [*HISAT2, "-U", "r.fq", "--summary-file", "{}"]),
    "the reference of CRAM": ("other.fa", [*REFERENCE, "-U", "r.fq", "--un={}"]),
    "the index of the reference by -d": ("g.fa.fai", [*MINIMAP2, "-ad", "{}", "g.fa", "r.fq"]),
    "the reads by an output that is not SAM": ("r.fq", [*MINIMAP2, "g.fa", "r.fq", "-o", "{}"]),
    "the reads, in auto": ("r.fq", ["run", "--share-host", *BOWTIE2[5:], "-U", "r.fq", "--un", "{}"]),
    "the reads, by advice": ("r.fq", ["advise", *BOWTIE2[5:], "-U", "r.fq", "--un", "{}"]),
    "the reads of run": ("r.fq", [*BY_BOWTIE2, "-o", "o.sam", "--", "--met-file", "{}"]),
    "the reads of trials": ("r.fq", [*ADVISE[:1], "--aligner=bowtie2", *ADVISE[2:], "--", "--met-file", "{}"]),
}  # fmt: skip
#: Further names of a file, such as links.
SPELLINGS = (
    *("{0}", "./{0}", "sub/../{0}", ".//{0}", "sub/..//./{0}", "{folder}/{0}", "//{folder}/{0}"),
    *("/proc/self/cwd/{0}", "/proc/thread-self/cwd/sub/../{0}", "soft", "soft2", "hard-{0}", "here/{0}"),
)


def some_spellings(number: int, spellings: tuple[str, ...]) -> tuple[str, ...]:
    """Return all spellings for the first file, and a third of them, others each time, for each further file."""
    return spellings[number % 3 :: 3] if number else spellings


@needs_bwa
@pytest.mark.parametrize("what", READ)
def test_no_output_is_what_a_run_reads_in_any_spelling(what, tmp_path, monkeypatch, capsys):
    target, command = READ[what]
    a_run(tmp_path)
    (tmp_path / "soft").symlink_to(target)
    (tmp_path / "soft2").symlink_to("soft")
    (tmp_path / "here").symlink_to(".")
    os.link(tmp_path / target, tmp_path / f"hard-{target}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    before = (tmp_path / target).read_bytes()
    for spelling in some_spellings([*READ].index(what), SPELLINGS):
        out = spelling.format(target, folder=tmp_path)
        end = command.index("--") if "--" in command else len(command)
        assert cli.main([*command[:end], "-o", out, *command[end:]]) == 2, spelling
        assert INPUT in capsys.readouterr().err, spelling
    assert (tmp_path / target).read_bytes() == before


@needs_bwa
@pytest.mark.parametrize("what", WRITTEN)
def test_no_program_writes_into_what_a_run_reads_in_any_spelling(what, tmp_path, monkeypatch, capsys):
    target, command = WRITTEN[what]
    needs = {"bowtie2", "hisat2", "minimap2"} & {word.removeprefix("--aligner=") for word in command}
    if missing := [program for program in needs if shutil.which(program) is None]:
        pytest.skip(f"{missing[0]} is not on PATH")
    a_run(tmp_path)
    (tmp_path / "soft").symlink_to(target)
    os.link(tmp_path / target, tmp_path / f"hard-{target}")
    monkeypatch.chdir(tmp_path)
    before = (tmp_path / target).read_bytes()
    with (tmp_path / target).open() as opened:
        names = ("{0}", "sub/../{0}", "{1}/{0}", "/proc/self/cwd/{0}", "soft", "hard-{0}", "/dev/fd/{2}")
        for name in some_spellings([*WRITTEN].index(what), names):
            file = name.format(target, tmp_path, opened.fileno())
            assert cli.main([word.replace("{}", file) for word in command]) == 2, file
            assert INPUT in capsys.readouterr().err, file
    assert (tmp_path / target).read_bytes() == before


#: Options with further files of a run -> whether it may write them.
FURTHER = {
    "--un-conc r%.fq -1 r1.fq -2 r2.fq": False,
    "--un-conc x%.fq -1 r1.fq -2 r2.fq": True,
    "--un-conc r.fq -1 r.1.fq -2 r.2.fq": False,
    "--un old.fq -U r1.fq": True,
    "--un /dev/null --al /dev/null --met-file /dev/null -U r1.fq": True,
    "--un . -U un-seqs": False,
    "--al-gz ./ -U r1.fq,al-seqs": False,
    "--un-conc . -1 un-conc-mate.1 -2 r2.fq": False,
    "--al . -U un-seqs": True,
    "--un /dev/stderr -U r1.fq": True,
}


@pytest.mark.parametrize("options", FURTHER)
def test_a_program_may_write_what_no_run_reads(options, tmp_path, monkeypatch):
    folder = ("un-seqs", "al-seqs", "un-mates-seqs", "un-conc-mate.1", "al-conc-mate.2")
    for name in ("r1.fq", "r2.fq", "r.1.fq", "r.2.fq", "old.fq", *folder):
        (tmp_path / name).write_text(f"@{name}\n")
    monkeypatch.chdir(tmp_path)
    command = command_line.parse(["bowtie2", "-x", "i", *options.split()])
    with contextlib.nullcontext() if FURTHER[options] else pytest.raises(BadInput, match=INPUT):
        command.refuse_overwriting()


FROM_STDIN = [*BWA[:-1], "-"]
#: Name, arguments, and what is open.
OPEN = [
    ("the reads by a descriptor", [*ALIGN, "-o", "/dev/fd/300", *BWA], "300<>r.fq"),
    ("reads that another descriptor has", [*ALIGN, "-o", "r.fq", *BWA[:-1], "/dev/fd/300"], "300<r.fq"),
    ("run by a descriptor", [*RUN, "-o", "/proc/self/fd/300"], "300<>r.fq"),
    ("appended to the reads", [*ALIGN, *BWA], ">>r.fq"),
    ("appended to the index", [*ALIGN, *BWA], ">>i/index.sa"),
    ("standard input", [*ALIGN, "-o", "r.fq", *FROM_STDIN], "<r.fq"),
    ("standard input by a hard link", [*ALIGN, "-o", "hard.fq", *FROM_STDIN], "<r.fq"),
    ("standard input is standard output", [*ALIGN, *FROM_STDIN], "<r.fq >>r.fq"),
    ("JSON appended to the reads", [*ALIGN, "--json", "-o", "z.sam", *BWA], ">>r.fq"),
    ("JSON of a divided run", [*ALIGN, "--progress", "text", "--json", "-o", "z.sam", *BWA], ">>i/index.sa"),
    ("JSON of run", [*RUN, "--json", "-o", "z.sam"], ">>r.fq"),
    ("the names that run prints", [*RUN, "-o", "z.sam"], "1<>r.fq"),
    ("JSON of trials", [*ADVISE, "--json"], ">>r.fq"),
]


@needs_bwa
@pytest.mark.parametrize(("name", "argv", "redirection"), OPEN, ids=[name for name, *_ in OPEN])
def test_no_output_is_an_open_input(name, argv, redirection, hostile):
    hostile(Case(name, argv, 2, INPUT, aligning, opened=redirection))


def shell(redirection: str) -> list[str]:
    return ["sh", "-c", f'exec {redirection}; exec "$@"', "sh"]


@needs_bwa
def test_no_output_is_what_a_shell_has_opened(hostile):
    hostile(Case("appended", [*ALIGN, *BWA], 2, INPUT, aligning, process=True, prefix=shell("<r2.fq >>r.fq")))


FREE = [
    ("to a new file by a descriptor", [*ALIGN, "-o", "/dev/fd/3", *BWA], "3<>new.sam"),
    ("to a copy of standard output", [*ALIGN, "-o", "/dev/stdout", *BWA], "1<>new.sam 3>&1"),
    ("over an earlier output, with a log of both", [*ALIGN, "-o", "new.sam", *BWA], ">log 2>&1"),
    ("to a file, with JSON", [*ALIGN, "--json", "-o", "new.sam", *BWA], ">log"),
    ("from standard input to a file", [*ALIGN, "-o", "new.sam", *FROM_STDIN], "<r.fq"),
    ("as the aligner's option names it", [*RUN[:2], *BWA[:3], "-o", "/dev/stdout", *BWA[3:]], ">new.sam"),
]


@needs_bwa
@pytest.mark.parametrize(("name", "argv", "redirection"), FREE, ids=[name for name, *_ in FREE])
def test_open_outputs_are_written(name, argv, redirection, hostile):
    leaves = ["new.sam", "log"]
    hostile(Case(name, argv, 0, "", aligning, leaves=leaves, process=True, prefix=shell(redirection)))


@needs_bwa
@pytest.mark.parametrize("case", ALIGNING, ids=str)
def test_hostile_outputs_of_an_aligner(case, hostile):
    hostile(case)


@needs_bwa
@needs_root
@pytest.mark.parametrize("case", DEVICES, ids=str)
def test_hostile_devices(case, hostile):
    hostile(case)


@pytest.mark.parametrize("case", OTHERS, ids=str)
def test_hostile_outputs(case, hostile):
    hostile(case)
