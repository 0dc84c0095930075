# SPDX-License-Identifier: Apache-2.0
"""Outputs that would destroy something: inputs, files of others, devices and pipes; and invalid places."""

import atexit
import functools
import os
import random
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from hostile import VM, Case

needs_bwa = pytest.mark.skipif(shutil.which("bwa") is None, reason="bwa is not on PATH")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make devices")


def fastq(names: str, seed: int) -> str:
    rng = random.Random(seed)  # noqa: S311
    return "".join(f"@{name}\n{''.join(rng.choices('ACGT', k=50))}\n+\n{'I' * 50}\n" for name in names)


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
    shutil.copy(folder / "r.fq", folder / "x.0.fq")
    (folder / "link.fq").symlink_to("r.fq")
    os.link(folder / "r.fq", folder / "hard.fq")
    os.link(folder / "i" / "index.sa", folder / "hard.sa")
    (folder / "precious.json").write_text('{"precious": 1}')
    (folder / "out.sam").write_text("an earlier run's\n")
    (folder / "sub").mkdir()


def with_folder_as_stripe(folder: Path) -> None:
    aligning(folder)
    (folder / "o.0").mkdir()


def device(folder: Path) -> None:
    aligning(folder)
    os.mknod(folder / "null", 0o666 | 0o020000, os.makedev(1, 3))
    (folder / "to-null").symlink_to("null")


RUN = ["run", "1Inst_Original", "--aligner=bwa-mem", "--index=i/index", "--reads=r.fq"]
ADVISE = ["advise", "--aligner=bwa-mem", "--index=i/index", "--reads=r.fq", "--budget=1"]
INPUT, TWICE = "this output is an input too", "this output is named twice"
OTHER = "its first line is not a record"

ALIGNING = [
    Case("the reads", [*RUN, "-o", "r.fq"], 2, INPUT, aligning),
    Case("the reads by another path", [*RUN, "-o", "sub/../r.fq"], 2, INPUT, aligning),
    Case("the reads by a link", [*RUN, "-o", "link.fq"], 2, INPUT, aligning),
    Case("the reads by a hard link", [*RUN, "-o", "hard.fq"], 2, INPUT, aligning),
    Case("the reads, sorted", [*RUN, "--sorted", "-o", "r.fq"], 2, INPUT, aligning),
    Case("the mates", [*RUN, "--reads2=r2.fq", "-o", "r2.fq"], 2, INPUT, aligning),
    Case("a stripe is the reads", [*RUN[:-1], "--reads=x.0.fq", "--striped", "-o", "x.fq"], 2, INPUT, aligning),
    Case("the index", [*RUN, "-o", "i/index.bwt"], 2, INPUT, aligning),
    Case("the index by a hard link", [*RUN, "-o", "hard.sa"], 2, INPUT, aligning),
    Case("records over the reads", [*RUN, "-o", "o.sam", "--records=r.fq"], 2, OTHER, aligning),
    Case("records over the index", [*RUN, "-o", "o.sam", "--records=i/index.pac"], 2, OTHER, aligning),
    Case("records over the output", [*RUN, "-o", "o.sam", "--records=o.sam"], 2, TWICE, aligning),
    Case("records over an old output", [*RUN, "-o", "out.sam", "--records=./out.sam"], 2, "", aligning),
    Case("records into others' file", [*RUN, "-o", "o.sam", "--records=precious.json"], 2, OTHER, aligning),
    Case("records into a folder", [*RUN, "-o", "o.sam", "--records=."], 2, "only be appended to a file", aligning),
    Case("records below a file", [*RUN, "-o", "o.sam", "--records=r.fq/x"], 2, "not a folder", aligning),
    Case("a folder", [*RUN, "-o", "sub"], 2, "the output is a folder", aligning),
    Case("an empty name", [*RUN, "-o", ""], 2, "the output is a folder", aligning),
    Case("no such folder", [*RUN, "-o", "no/o.sam"], 2, "folder of the output does not exist", aligning),
    Case("no such device", [*RUN, "-o", "/dev/firsttouch-nothing"], 2, "no such device", aligning),
    Case("a stripe is a folder", [*RUN, "--striped", "-o", "o"], 2, "is a folder", with_folder_as_stripe),
    Case("striped over what is open", [*RUN, "--striped", "-o", "/dev/stdout"], 2, "not a file", aligning),
    Case("advice over the reads", [*ADVISE, "--apply", "-o", "r.fq"], 2, INPUT, aligning),
    Case("advice over the index", [*ADVISE, "--apply", "-o", "i/index.ann"], 2, INPUT, aligning),
    Case("an earlier output is replaced", [*RUN, "-o", "out.sam"], 0, "out.sam", aligning, changes=["out.sam"]),
    Case("standard output", [*RUN, "-o", "/dev/stdout"], 0, r"@SQ\tSN:g", aligning, process=True),
]  # fmt: skip

DEVICES = [
    Case("a device", [*RUN, "-o", "null"], 0, "", device),
    Case("a device, sorted", [*RUN, "--sorted", "-o", "null"], 0, "", device),
    Case("a link to a device", [*RUN, "-o", "to-null"], 0, "", device),
    Case("striped over a device", [*RUN, "--striped", "-o", "null"], 2, "not a file", device),
    Case(
        "records into a device", [*RUN, "-o", "o.sam", "--records=null"], 2, "only be appended to a file", device
    ),
    Case("blocked reads into a device", ["reads", "block", "r.fq", "-o", "null"], 0, "blocks", device),
    Case("a draft into a device", ["system", "draft", "lab", "--force", "-o", "null"], 0, "drafted", device),
]


def two_reads(folder: Path) -> None:
    (folder / "a.fq").write_text(fastq("xyz", 1))
    (folder / "b.fq").write_text(fastq("xyz", 2))
    os.link(folder / "a.fq", folder / "hard.fq")
    (folder / "link.fq").symlink_to("a.fq")


BLOCK = ["reads", "block", "a.fq"]
BASELINE = ["baseline", "--system=lab"]
PAIR = ["reads", "block", "a.fq", "b.fq", "-o"]


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
    Case("the reads", [*BLOCK, "-o", "a.fq"], 2, INPUT, two_reads),
    Case("a link", [*BLOCK, "-o", "link.fq"], 2, INPUT, two_reads),
    Case("a hard link", [*BLOCK, "-o", "hard.fq"], 2, INPUT, two_reads),
    Case("one of the mates", [*PAIR, "o.fq", "b.fq"], 2, INPUT, two_reads),
    Case("two of the same name", [*PAIR, "o.fq", "./o.fq"], 2, TWICE, two_reads),
    Case("too large blocks", [*BLOCK, "-o", "o.fq", "--block-bytes=999TB"], 2, "bytes at most", two_reads),
    Case("the output is a folder", [*BLOCK, "-o", "."], 2, "is a folder", two_reads),
    Case("baseline over its records", [*BASELINE, "r.jsonl", "-o", "r.jsonl"], 2, INPUT, stored),
    Case("baseline over a folder's records", [*BASELINE, "results", "-o", "hard.jsonl"], 2, INPUT, stored),
    Case("report over its records", ["report", "results", "-o", "results"], 2, "holds an input", stored),
    Case("report around its records", ["report", "r.jsonl", "-o", "."], 2, "holds an input", stored),
    Case("probe into a file of others", ["probe", "topology", "--records", "precious.json"], 2, OTHER, stored),
    Case("probe into something else", ["probe", "topology", "--records", "binary"], 2, OTHER, stored),
    Case("probe into a folder", ["probe", "topology", "--records", "empty"], 2, "appended to a file", stored),
    Case("probe into a pipe", ["probe", "topology", "--records", "pipe"], 2, "appended to a file", stored),
    Case("probe without a file", ["probe", "latency", "--records"], 2, "expected one argument", stored),
    Case("measure into others' file", ["measure", "topology", "--records=precious.json"], 2, OTHER, stored),
    Case("measure into a folder", ["measure", "topology", "--records=empty"], 2, "appended to a file", stored),
    Case("measure into a pipe", ["measure", "topology", "--records=pipe"], 2, "appended to a file", stored),
    Case("no scenario of two lines", ["run", "a\nb", "--aligner=bwa-mem", "-o", "o.sam"], 2, "", stored),
    Case("no aligner of two lines", ["plan", "--aligner=a\nb"], 2, r"a\\nb", stored),
]  # fmt: skip


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
