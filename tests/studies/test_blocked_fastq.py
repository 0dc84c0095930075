# SPDX-License-Identifier: Apache-2.0
"""The blocked form: N records fill B bytes, and are the same records; and the command that writes it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import blocked_fastq
from blocked_fastq import block
from factories.fastq_files import GOOD, common, fastq, layout, packed, text, write
from factories.genomes import built, installed, records
from firsttouch import paths
from firsttouch.errors import BadInput
from firsttouch.genomics import fastq as fastq_module
from firsttouch.genomics.division import repeated_division
from firsttouch.genomics.fastq import inspect
from firsttouch.genomics.reads import BatchRule


def unpadded(data):
    """Return *data* without the blanks at the ends of names."""
    lines = data.split(b"\n")
    return b"\n".join(line.rstrip(b" ") if number % 4 == 0 else line for number, line in enumerate(lines))


@given(records=fastq(mates=2), written=layout(), number=st.none() | st.integers(1, 5), interleaved=st.booleans())
@common(30)
def test_blocks_hold_the_same_records(tmp_path, *, records, written, number, interleaved):
    if interleaved:
        files = [write(tmp_path / "i.fq", written([r for pair in zip(*records, strict=True) for r in pair]))]
    else:
        files = [write(tmp_path / f"{n}.fq", written(r)) for n, r in enumerate(records)]
    reads = inspect(files, interleaved=interleaved)
    outs = [tmp_path / f"{n}.out" for n in range(2)]
    blocked = block(reads, outs, block_bytes=4000, per_block=number)
    assert blocked.reads == number or (number is None and blocked.reads >= 1)
    for out, of_mate in zip(outs, records, strict=True):
        data = out.read_bytes()
        assert unpadded(data) == unpadded(text(of_mate))
        # Block after block from its place, as a program that knows nothing of the others reads it.
        for at in range(0, len(of_mate), blocked.reads):
            begin = at // blocked.reads * blocked.block_bytes
            here = data[begin : begin + blocked.block_bytes]
            assert unpadded(here) == unpadded(text(of_mate[at : at + blocked.reads]))
        whole = len(of_mate) // blocked.reads
        assert len(data) == whole * blocked.block_bytes + len(unpadded(text(of_mate[whole * blocked.reads :])))
    assert blocked.blocks == -(-len(records[0]) // blocked.reads)


def test_the_figure_of_the_paper(tmp_path):
    """Langmead et al. 2019, figure 2: B = 64, N = 2; where the lines begin in each of the blocked files."""
    ends = [("GGTATATATG", "CCATAGCCAT", "CCATAGCCAT"), ("CACCCGTTA", "CGGTTGACC", "CCATAGCCA")]
    files = [
        write(tmp_path / f"{m}.fq", text([[f"@read{n}", b, "+", "B" * len(b)] for n, b in enumerate(bases, 1)]))
        for m, bases in enumerate(ends)
    ]
    outs = [tmp_path / "1.out", tmp_path / "2.out"]
    block(inspect(files), outs, block_bytes=64, per_block=2)
    places = []
    for out in outs:
        lines = out.read_bytes().splitlines(keepends=True)
        places.append([sum(map(len, lines[:n])) for n in range(len(lines))])
    assert places == [
        [0, 7, 18, 20, 31, 40, 51, 53, 64, 71, 82, 84],
        [0, 7, 17, 19, 29, 42, 52, 54, 64, 71, 81, 83],
    ]


def test_records_that_do_not_fit(tmp_path):
    reads = inspect([write(tmp_path / "r.fq", text([*GOOD * 3, ["@long", "A" * 50, "+", "I" * 50]]))])
    out = tmp_path / "out"
    with pytest.raises(BadInput, match=r"records 9 to 10 of mate 1 .*119 bytes"):
        block(reads, [out], block_bytes=100, per_block=2)
    with pytest.raises(BadInput, match=r"110 bytes: .*100 bytes"):
        block(reads, [out], block_bytes=100)
    # The last block has fewer records than the others, which do not fit.
    with pytest.raises(BadInput, match=r"fq: records 7 to 10 of mate 1 .*145 bytes: .*-per-block 1 "):
        block(reads, [out], block_bytes=145, per_block=6)
    assert [f.name for f in tmp_path.iterdir()] == ["r.fq"]


@pytest.mark.parametrize("marks", [1, 1 << 16])
def test_whole_blocks_are_repeated(tmp_path, monkeypatch, marks):
    """Every instance gets whole blocks, whatever the number of marks that are kept of them."""
    monkeypatch.setattr(fastq_module, "ENOUGH_MARKS", marks)
    plain, file = write(tmp_path / "r.fq", text(GOOD * 12)[:-1]), tmp_path / "b.fq"
    written = block(inspect([plain]), [file], block_bytes=100, per_block=5, whole=True)  # one record is left out
    assert (written.blocks, file.stat().st_size) == (7, 700)
    reads = inspect([file], BatchRule(records=5))
    divided = repeated_division(reads, 2, 60)
    assert (divided.passes, divided.pass_records) == (4, 35)
    assert all(part % 5 == 0 for part in divided.parts)
    assert list(reads.batches.offsets[0]) == [20 * at for at in reads.batches.records]
    with pytest.raises(BadInput, match=r"36 records .* 40"):
        block(inspect([plain]), [file], block_bytes=1000, per_block=40, whole=True)


@pytest.fixture
def run(capsys):
    """Returns a function that runs the command and returns its status, output and messages."""

    def run(*argv):
        status = blocked_fastq.main([*map(str, argv)])
        return status, *capsys.readouterr()

    return run


def test_the_command_blocks(tmp_path, run):
    files = [write(tmp_path / f"{n}.fq.gz", packed(text(GOOD * 9))) for n in range(2)]
    outs = [tmp_path / "b1.fq", tmp_path / "b2.fq"]
    status, out, err = run(*files, "-o", *outs, "--block-bytes", 1000, "--reads-per-block", 9)
    assert (status, out) == (0, f"{outs[0]}\n{outs[1]}\n")
    assert "3 blocks: --block-bytes 1000 --reads-per-block 9" in err
    assert all(unpadded(o.read_bytes()) == text(GOOD * 9) for o in outs)
    _, _, err = run(*files, "-o", *outs, "--block-bytes", 1000, "--reads-per-block", 10, "--whole")
    assert err.startswith("2 blocks: ")
    _, _, err = run(*files, "-o", *outs)
    assert f"1 blocks: --block-bytes 12288 --reads-per-block {12288 // len(text(GOOD[:1]))}" in err


def test_make_writes_blocked_reads(tmp_path):
    file, out = write(tmp_path / "r.fq", text(GOOD * 9)), tmp_path / "b.fq"
    argv = ["make", "-s", "-o", "setup", "blocked-reads", f"BIN={Path(sys.executable).parent}"]
    argv.append(f"ARGS={file} -o {out} --block-bytes 1000 --reads-per-block 9")
    done = subprocess.run(argv, cwd=paths.ROOT, check=True, capture_output=True, text=True, timeout=200)
    assert done.stdout == f"{out}\n"
    assert unpadded(out.read_bytes()) == text(GOOD * 9)


def test_the_command_refuses(tmp_path, run):
    file, mate = write(tmp_path / "r.fq", text(GOOD)), write(tmp_path / "m.fq", text(GOOD))
    bad = write(tmp_path / "bad.fq", text(GOOD) + b"@r\nAC\n+\nI\n")
    link, hard, other = tmp_path / "link", tmp_path / "hard", tmp_path / "o"
    link.symlink_to(file)
    hard.hardlink_to(file)
    for argv, reason in (
        ([file, "-o", tmp_path / "a", tmp_path / "b"], "2 output files, but the reads have 1 mates"),
        ([file, "-o", file], "this output would overwrite the input"),
        ([file, "-o", link], "this output would overwrite the input"),
        ([file, "-o", hard], "this output would overwrite the input"),
        ([file, mate, "-o", other, mate], "this output would overwrite the input"),
        ([file, mate, "-o", other, f"{tmp_path}/./o"], "this output is named twice"),
        ([file, "-o", tmp_path / "no" / "a"], "is not a writable folder"),
        ([file, "-o", tmp_path], "is a folder"),
        ([file, "-o", other, "--block-bytes", 1 << 40], "bytes at most"),
        ([file, "-o", other, "--block-bytes", 1], "blocks of 1 bytes hold none"),
        ([file, "-o", other, "--reads-per-block", "9" * 20], "have no room for 9+ records"),
        ([bad, "-o", other], "bad.fq:16: record 4"),
        ([tmp_path / "absent", "-o", other], "No such file"),
    ):
        status, out, err = run(*argv)
        assert (status, out) == (2, ""), argv
        assert re.search(reason, err), (argv, err)
        assert err.count("\n") == 1
    assert (file.read_bytes(), other.exists()) == (text(GOOD), False)


# ----------------------------------------------------------------------
# Real aligners read the same reads from the padded form


#: Pairs of reads in the tests, which fill more than ten blocks.
PAIRS = 600
#: The command with which each aligns a pair of files.
ALIGNERS = {
    "bwa-mem": ["bwa", "mem", "-v", "1", "-K", "100000", "{0}", "{1}", "{2}"],
    "bowtie2": ["bowtie2", "-p", "1", "-x", "{0}", "-1", "{1}", "-2", "{2}"],
    "bowtie": ["bowtie", "-S", "-p", "1", "-x", "{0}", "-1", "{1}", "-2", "{2}"],
    "hisat2": ["hisat2", "-p", "1", "-x", "{0}", "-1", "{1}", "-2", "{2}"],
}


@pytest.mark.parametrize("name", ALIGNERS)
def test_alignments_of_the_blocked_form(name, lambda_work, tmp_path, tmp_path_factory):
    _, files, reference = lambda_work
    index = built(installed(name), reference, tmp_path_factory)
    plain = [tmp_path / f"plain{mate}.fq" for mate in (1, 2)]
    for file, source in zip(plain, files, strict=True):
        file.write_bytes(b"".join(records(source)[:PAIRS]))
    blocked = [tmp_path / f"blocked{mate}.fq" for mate in (1, 2)]
    result = block(inspect(plain), blocked)
    assert result.blocks > 10
    outputs = []
    for pair in (plain, blocked):
        argv = [word.format(index, *pair) for word in ALIGNERS[name]]
        done = subprocess.run(argv, cwd=tmp_path, check=True, capture_output=True, timeout=200)
        outputs.append([line for line in done.stdout.splitlines() if line[:1] != b"@" or line[3:4] != b"\t"])
    assert len(outputs[0]) >= 2 * result.blocks
    assert outputs[0] == outputs[1]
