"""Hostile input: FASTQ files, plain and gzip, and files that describe datasets."""

import bz2
import gzip
import os
import shutil
from pathlib import Path

import pytest

from firsttouch.errors import BadInput
from firsttouch.genomics import fastq
from hostile import Case

GOOD = b"@r1\nACGT\n+\nIIII\n@r2\nGGCA\n+\nIIII\n"
PACKED = gzip.compress(GOOD * 500, mtime=0)

#: Fault in the third record -> (the record, a pattern of the message); unit/test_fastq.py has all faults.
SOME = {
    "no name": (b"@\nAC\n+\nII\n", r"r\.fq:9: record 3 has no name"),
    "SAM": (b"r\t0\tc\t1\t60\t2M\t*\t0\t0\tAC\tII\n" * 4, r":9: record 3 begins without @"),
}

#: Files that do not even begin as FASTQ, or that must not be read.
FILES = {
    "nothing": (b"", r"r\.fq: no reads"),
    "half of gzip": (PACKED[: len(PACKED) // 2], r"r\.fq: .*truncated or damaged"),
    "damaged gzip": (PACKED[:60] + b"\x55" * 9 + PACKED[69:], r"r\.fq: .*truncated or damaged"),
    "gzip of gzip": (gzip.compress(PACKED, mtime=0), r"r\.fq:1: record 1 begins without @"),
    "bzip2": (bz2.compress(GOOD), r"decompress it with bzip2|give <\(bzip2 -dc r\.fq\)"),
    "xz": (b"\xfd7zXZ\0" + bytes(99), r"decompress it with xz|give <\(xz -dc r\.fq\)"),
    "zstd": (b"\x28\xb5\x2f\xfd" + bytes(99), r"decompress it with zstd|give <\(zstd -dc r\.fq\)"),
    "zip": (b"PK\3\4" + bytes(99), r"decompress it with unzip|give <\(unzip -p r\.fq\)"),
    "a byte-order mark": (b"\xef\xbb\xbf" + GOOD, r"r\.fq:1: record 1 begins without @"),
    "BAM": (b"BAM\1" + bytes(99), r"r\.fq:1: record 1 begins without @"),
}

PAIRS = {
    "mate 1 twice": (GOOD.replace(b"r2", b"r2/1"),) * 2 + (r"record 2: @r2/1 and @r2/1 are the same mate",),
    "fewer of mate 2": (GOOD, GOOD[: len(GOOD) // 2], "no mate, the other file of the pair ends"),
}

MANIFEST = """\
title = "a set"
kind = "url"
source = "somebody"
[[file]]
role = "reference"
name = "a.fa"
url = "http://127.0.0.1:1/a.fa"
why_unpinned = "it is a test"
[[file]]
role = "reads"
name = "r.fq"
url = "http://127.0.0.1:1/r.fq"
why_unpinned = "it is a test"
"""

#: Fault in a dataset's file -> (its content, a pattern of the message).
MANIFESTS = {
    "empty": ("", r"set\.toml:1: kind must be one of"),
    "Latin-1": (MANIFEST.replace("a set", "\xe4").encode("latin-1"), r"set\.toml:\d+: not UTF-8 text"),
    "NUL": (MANIFEST + "\0", r"set\.toml:14: not TOML"),
    "nested too deeply": ("a = " + "[" * 20_000, r"set\.toml: not TOML: it is nested too deeply"),
    "a number of 9,000 digits": ("a = " + "1" * 9000, r"set\.toml: not TOML: "),
    "a way out of the store": (MANIFEST.replace('"r.fq"', '"../r.fq"'), r"set\.toml:11: file\[1\]\.name"),
    "a reference that is itself": (
        'title = "t"\nkind = "manual"\nhow = "h"\nsource = "s"\nreference = "set"\n'
        '[[file]]\nrole = "reads"\nname = "a"\nwhy_unpinned = "w"\n',
        r"set\.toml:5: reference: 'set' has no reference",
    ),
}


def index(folder):
    """Make files that look like an index of bwa until bwa reads them."""
    for suffix in (".amb", ".ann", ".bwt", ".pac", ".sa"):
        (folder / f"idx{suffix}").write_bytes(b"x")


def in_run(content):
    """Return a maker of an index and a file of reads."""

    def make(folder):
        index(folder)
        (folder / "r.fq").write_bytes(content)

    return make


def special(folder):
    os.mkfifo(folder / "fifo")
    (folder / "folder").mkdir()
    (folder / "dangling").symlink_to("nowhere")
    (folder / "loop").symlink_to("loop")


RUN = ["run", "1x-default", "--aligner", "bwa-mem", "--index", "idx", "--reads", "r.fq", "-o", "out.sam"]
GET = ["data", "get", "set"]
NEEDS_BWA = pytest.mark.skipif(not shutil.which("bwa"), reason="no bwa")
SETS = {"FIRSTTOUCH_DATASETS": "sets"}
#: A file of reads that cannot be read as such -> a pattern of the message.
NO_READS = {
    "fifo": "is not a regular file",
    "folder": "cannot be read: Is a directory",
    "dangling": "cannot be read: No such file",
    "nothing": "nothing: cannot be read: No such file",
    "/dev/zero": "is not a regular file",
    "-": "reads cannot come from standard input",
}
HANDED_IN = {**{n: GOOD + bad for n, (bad, _) in SOME.items()}, **{n: data for n, (data, _) in FILES.items()}}
UNUSABLE = r"r\.fq: unusable FASTQ|r\.fq: .*gzip|r\.fq: .*no reads"

CASES = [
    *(
        Case(f"dataset: {n}", GET, 2, says, {"sets/set.toml": text}, environment=SETS)
        for n, (text, says) in MANIFESTS.items()
    ),
    *(
        Case(
            *(f"list: {n}", ["data", "list"], 2, r"(?s)good .*set\.toml|set\.toml.*good "),
            {"sets/set.toml": text, "sets/good.toml": MANIFEST},
            environment=SETS,
        )
        for n, (text, _) in MANIFESTS.items()
    ),
    *(
        Case(
            *(f"handed in: {n}", [*GET, "--from", "a.fa", "r.fq"], 2, UNUSABLE),
            {"sets/set.toml": MANIFEST, "a.fa": b">a\nACGT\n", "r.fq": data},
            leaves=["../data/*"],
            environment=SETS,
        )
        for n, data in HANDED_IN.items()
    ),
]
RUNS = [
    *(Case(f"run: {n}", RUN, 2, says, in_run(GOOD + bad)) for n, (bad, says) in SOME.items()),
    *(Case(f"run: {n}", RUN, 2, says, in_run(data)) for n, (data, says) in list(FILES.items())[::3]),
    Case("run: one file for both mates", [*RUN, "--reads2", "r.fq"], 2, "mate 1 again", in_run(GOOD)),
    Case("run: no index", RUN, 2, "no index of bwa-mem: build it", {"r.fq": GOOD}),
    Case("run: an index of rubbish", RUN, 1, "bwa ended with", in_run(GOOD)),
]


#: The content of files r.fq and m.fq -> a pattern of the message.
UNREADABLE = [
    *(({"r.fq": gzip.compress(GOOD + bad, mtime=0)}, says) for bad, says in SOME.values()),
    *(({"r.fq": data}, says) for data, says in FILES.values()),
    *(({"r.fq": mate_1, "m.fq": mate_2}, says) for mate_1, mate_2, says in PAIRS.values()),
]


@pytest.mark.parametrize(("files", "says"), UNREADABLE)
def test_the_check_of_reads_names_the_fault_in_one_line(tmp_path, monkeypatch, files, says):
    monkeypatch.chdir(tmp_path)
    for name, data in files.items():
        Path(name).write_bytes(data)
    with pytest.raises(BadInput, match=says) as caught:
        fastq.inspect([Path(name) for name in files])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", NO_READS)
def test_what_is_no_file_of_reads(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    special(tmp_path)
    with pytest.raises(BadInput, match=NO_READS[name]):
        fastq.inspect([Path(name)])


def test_a_number_of_files_that_are_no_reads(tmp_path):
    (tmp_path / "r.fq").write_bytes(GOOD)
    file = tmp_path / "r.fq"
    assert fastq.inspect([file]).records == 2
    for files, interleaved, says in (
        ([file, file], False, "file of mate 1 again"),
        ([file], True, "has no mate|no pair"),
        ([file] * 3, False, "3 read files"),
    ):
        with pytest.raises(BadInput, match=says):
            fastq.inspect(files, interleaved=interleaved)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_hostile_fastq(case, hostile):
    hostile(case)


@NEEDS_BWA
@pytest.mark.parametrize("case", RUNS, ids=str)
def test_hostile_fastq_in_a_run(case, hostile):
    hostile(case)
