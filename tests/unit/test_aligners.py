# SPDX-License-Identifier: Apache-2.0
"""Aligners as data: those that come with firsttouch, and files that are wrong."""

from pathlib import Path

import pytest

from firsttouch import aligners
from firsttouch.errors import BadInput, Missing, RunFailed

pytestmark = pytest.mark.unit

TEXT = """\
program = "aln"
debian = "aln-tools"
version = { argv = ["aln", "-V"], pattern = 'aln (\\S+)' }

[index]
argv = ["aln", "index", "{reference}", "{index}"]
files = [".a", ".b"]

[align]
single = ["aln", "-t{threads}", "{index}", "{reads}"]
paired = ["aln", "-t{threads}", "-K", "{batch_bases}", "{index}", "{reads}", "{reads2}"]
batch_bases = 100

[memory]
instance = "200 MB"
thread = "1 MiB"
"""


@pytest.fixture
def aln():
    return aligners.parse("aln", TEXT, "aln.toml")


@pytest.mark.parametrize("name", sorted(aligners.aligners()))
def test_every_aligner_can_say_its_argv(name):
    one = aligners.aligner(name)
    for reads in (["r1"], ["r1", "r2"]):
        argv = one.align_argv(index=Path("idx"), reads=reads, threads=7, batch_bases=99)
        assert argv[0] == one.program
        assert not [a for a in argv if "{" in a]
        text = " ".join(argv)
        assert all(word in text for word in ("idx", "7", *reads))
        assert ("99" in text) == (one.batch_bases > 0)
    assert one.index_files
    assert one.need(10).of(2) > 10


def test_an_unknown_one():
    with pytest.raises(BadInput, match="no aligner 'best': there are bwa-mem"):
        aligners.aligner("best")


def test_argv_and_need(aln):
    single = aln.align_argv(index=Path("i"), reads=["r"], threads=4, batch_bases=0)
    assert single == ["aln", "-t4", "i", "r"]
    paired = aln.align_argv(index=Path("i"), reads=["r", "s"], threads=4, batch_bases=5)
    assert paired == ["aln", "-t4", "-K", "5", "i", "r", "s"]
    assert aln.need(1000).of(3) == 1000 + 200_000_000 + 3 * 2**20


def test_names_with_braces_are_left_alone(aln):
    odd = "{reads2}"
    assert aln.align_argv(index=Path("{x}"), reads=[odd], threads=1, batch_bases=0)[-2:] == ["{x}", odd]


def test_the_index_is_whole_or_not_there(aln, tmp_path):
    prefix = tmp_path / "idx"
    (tmp_path / "idx.a").write_bytes(b"12345")
    with pytest.raises(BadInput, match=rf"^{prefix}\.b: no index of aln there: build it with `firsttouch index`"):
        aln.index_bytes(prefix)
    (tmp_path / "idx.b").write_bytes(b"12")
    assert aln.index_bytes(prefix) == 7


def test_version(aln, stand_in, monkeypatch, tmp_path):
    stand_in("aln", "echo aln 1.2-r3 >&2; exit 1")
    assert aln.version() == "1.2-r3"
    stand_in("aln", "echo what")
    with pytest.raises(RunFailed, match="aln -V does not say its version"):
        aln.version()
    (tmp_path / "stand-ins" / "aln").write_bytes(b"\x7fELF nonsense")
    with pytest.raises(RunFailed, match="aln -V does not say its version"):
        aln.version()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Missing, match=r"'aln' is not on PATH.*\(Debian: apt-get install aln-tools\)"):
        aln.version()


def test_building_fails_with_the_logs_end(aln, stand_in, tmp_path):
    stand_in("aln", "echo one; echo two >&2; echo three; exit 4")
    with pytest.raises(RunFailed, match=r"aln index .*r\.fa .*idx ended with status 4: two \| three"):
        aln.build_index(tmp_path / "r.fa", tmp_path / "idx", tmp_path / "log")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('program = "aln"', "", "'program' is a required property"),
        ('program = "aln"', "program = ", "Invalid value"),
        ('program = "aln"', "program = 3", "program: 3 is not of type"),
        ('program = "aln"', 'program = "aln"\ncolour = "red"', "colour"),
        ("batch_bases = 100", "batch_bases = -1", "align.batch_bases: -1 is less"),
        ("batch_bases = 100", 'batch_bases = "1"', "align.batch_bases"),
        ('files = [".a", ".b"]', "files = []", "index.files"),
        ('"{index}", "{reads}"]', '"{index}", "{read}"]', "unknown placeholder {read}"),
        ('"{index}", "{reads}"]', '"{index}", "{reads2}"]', "unknown placeholder {reads2}"),
        ('"{reference}"', '"{threads}"', "unknown placeholder {threads}"),
        ('"{reference}"', '"{}"', "unknown placeholder {}"),
        ('"{reference}"', '"{reference"', "expected '}'"),
        ("'aln (\\S+)'", "'aln'", "version.pattern: has 0 groups"),
        ("'aln (\\S+)'", "'('", "version.pattern"),
        ('"200 MB"', '"much"', "memory: 'much' is not a quantity"),
        ('"1 MiB"', '"-1 MiB"', "memory"),
    ],
)
def test_what_is_wrong_is_named_with_its_file(old, new, reason):
    assert TEXT.count(old) == 1
    with pytest.raises(BadInput) as caught:
        aligners.parse("aln", TEXT.replace(old, new), "aln.toml")
    assert str(caught.value).startswith("aln.toml: ")
    assert reason in str(caught.value)
