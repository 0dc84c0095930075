# SPDX-License-Identifier: Apache-2.0
"""Aligners as data: those that come with firsttouch, and files that are wrong."""

import shutil
from pathlib import Path
from typing import get_args

import pytest

from firsttouch import paths
from firsttouch.errors import BadInput, Missing, RunFailed
from firsttouch.genomics import aligners, command_line
from firsttouch.genomics.aligners import mates_placeholder
from firsttouch.genomics.reads import BatchRule
from firsttouch.paths import ROOT
from firsttouch.records import atomic_files

TEXT = """\
program = "aln"
debian = "aln-tools"
version = { argv = ["aln", "-V"], pattern = 'aln (\\S+)' }

[index]
argv = ["aln", "index", "{reference}", "{index}"]
files = [".a", ".b"]
large = "l"

[align]
single = [["aln-{size}", "-t{threads}", "-K", "{batch_bases}", "{index}", "{reads}"]]
paired = [
    ["aln-{size}", "-t{threads}", "-K", "{batch_bases}", "-o", "{scratch}/2", "{index}", "{reads2}"],
    ["aln-{size}", "-t{threads}", "join", "{scratch}/2", "{reads}", "{reads2}"],
]
in_order = true
same = "exact"
batch_bases = 100

[memory]
instance = "200 MB"
thread = "1 MiB"
"""


@pytest.fixture
def aln():
    return aligners.parse("aln", TEXT, "aln.toml")


def argvs(aligner, mates, *, index="idx", threads=7):
    """Return the argv of every step, each with names for the read files that it reads and no others."""
    names = ("r1", "r2")[:mates]
    return [
        aligner.argv(
            step,
            index=Path(index),
            reads=[n if mate in mates_placeholder(step) else None for mate, n in enumerate(names)],
            threads=threads,
            batch_bases=99,
            scratch=Path("tmp"),
        )
        for step in aligner.steps(mates)
    ]


@pytest.mark.parametrize("mates", [1, 2])
@pytest.mark.parametrize("name", sorted(aligners.aligners()))
def test_every_aligner_can_say_its_argv(name, mates):
    aligner = aligners.aligner(name)
    if mates == 2 and not aligner.align.paired:
        with pytest.raises(BadInput, match=f"^{name} "):
            aligner.steps(2)
        return
    steps = argvs(aligner, mates)
    words = [word for argv in steps for word in argv]
    assert not [word for word in words if "{" in word]
    assert any("idx" in word for word in words)
    assert "7" in words
    assert ("99" in words) == (aligner.batch.bases > 0)
    assert {mate for step in aligner.steps(mates) for mate in mates_placeholder(step)} == set(range(mates))
    for step, argv in zip(aligner.steps(mates), steps, strict=True):
        assert [argv.count(r) for r in ("r1", "r2")] == [
            int(mate in mates_placeholder(step) and not aligner.on_stdin(step)) for mate in (0, 1)
        ]
        assert ("-" in argv) or not aligner.on_stdin(step)
    # A step's files for the next step are where no other instance writes.
    assert len(steps) == 1 or all("tmp/" in " ".join(argv) for argv in steps)


@pytest.mark.parametrize("name", sorted(aligners.aligners()))
def test_every_aligner_says_what_it_needs(name):
    aligner = aligners.aligner(name)
    assert aligner.index.files
    assert aligner.need(10).bytes_for(2) > aligner.need(10).bytes_for(1) > 10 + 1_000_000
    assert aligner.align.same in get_args(aligners.Same)


def test_what_a_base_gives(monkeypatch, tmp_path, stand_in):
    def write(name, text):
        (tmp_path / f"{name}.toml").write_text(text)

    monkeypatch.setitem(paths._BUILT_IN, "aligners", tmp_path)
    aligners.aligner.cache_clear()
    write("aln", TEXT.replace("[align]", 'version = ["aln-index", "-V"]\n[align]'))
    shutil.copy(paths.PACKAGE / "genomics" / "aligners" / "bwa-mem.toml", tmp_path)
    write("a-bwa", 'base = "bwa-mem"')
    write("fast", 'base = "aln"\nmemory.thread = "2 MiB"\n')
    write(
        "other",
        'base = "fast"\nprogram = "other"\nversion.argv = ["other"]\nindex.argv = ["o", "{reference}{index}"]',
    )
    fast, other = aligners.aligner("fast"), aligners.aligner("other")
    assert (fast.index_of, fast.package, fast.memory.thread, fast.memory.instance) == (
        "aln",
        "aln-tools",
        2 << 20,
        200_000_000,
    )
    assert (other.index_of, other.package, other.memory.thread, other.version_command.pattern) == (
        "other",
        "",
        2 << 20,
        fast.version_command.pattern,
    )
    assert command_line.parse(["bwa", "mem", "i", "r.fq"]).aligner.name == "bwa-mem"
    stand_in("aln-index", "echo aln 7")
    reference = tmp_path / "r.fa"
    reference.write_text(">r\nACGT\n")
    place = aligners.index_prefix(fast, reference, tmp_path)
    assert place == aligners.index_prefix(aligners.aligner("aln"), reference, tmp_path)
    assert place.parent.name.startswith("aln-7-")
    write("other", 'base = "fast"\nindex = 3')
    with pytest.raises(BadInput, match=r"other\.toml:2: .*index"):
        aligners.aligner.__wrapped__("other")
    # A base is checked like every file, and errors name the file that has them.
    write("aln", "program = 3")
    with pytest.raises(BadInput, match=rf"^{tmp_path}/aln\.toml:1: "):
        aligners.aligner.__wrapped__("other")
    write("fast", 'base = "other"')
    with pytest.raises(BadInput, match=r"other\.toml:1: base: "):
        aligners.aligner.__wrapped__("fast")
    write("fast", '\nbase = "aln2"')
    with pytest.raises(BadInput, match=r"fast\.toml:2: base: .*'aln2'.*'aln'"):
        aligners.aligner.__wrapped__("fast")
    for base in ("{}", "[]", "3"):
        write("fast", f"base = {base}")
        with pytest.raises(BadInput, match=r"fast\.toml:1: base: "):
            aligners.aligner.__wrapped__("fast")
    aligners.aligner.cache_clear()


def test_an_unknown_one():
    with pytest.raises(BadInput, match=r"'bowtie3'.*'bowtie2?'"):
        aligners.aligner("bowtie3")
    with pytest.raises(BadInput, match=r"'best': .*bwa-mem"):
        aligners.aligner("best")


def test_argv_and_need(aln):
    assert argvs(aln, 1) == [["aln-s", "-t7", "-K", "99", "idx", "r1"]]
    assert argvs(aln, 2) == [
        ["aln-s", "-t7", "-K", "99", "-o", "tmp/2", "idx", "r2"],
        ["aln-s", "-t7", "join", "tmp/2", "r1", "r2"],
    ]
    assert [mates_placeholder(step) for step in aln.steps(2)] == [(1,), (0, 1)]
    assert aln.need(1000).bytes_for(3) == 1000 + 200_000_000 + 3 * 2**20
    assert aln.batch == BatchRule(bases=100)


def test_batches_need_memory():
    aligner = aligners.parse("aln", TEXT + 'batch_base = "12 B"\n', "aln.toml")
    assert aligner.need(0).instance_bytes == 200_000_000 + 12 * 100
    assert aligner.need(0, 10_000_000).bytes_for(1) == 320_000_000 + 2**20
    command = command_line.parse(["bwa", "mem", "-K", "100000000", "ref.fa", "r.fq"])
    assert command.aligner.need(0).bytes_for(1) == pytest.approx(1.5e9, rel=0.1)


def test_a_read_file_that_a_step_needs_must_be_given(aln):
    with pytest.raises(KeyError, match="reads2"):
        aln.argv(aln.steps(2)[0], index=Path("i"), reads=["r", None], threads=1, batch_bases=1, scratch=Path("t"))


def test_reads_on_standard_input():
    text = TEXT.replace('"{index}", "{reads}"]', '"{index}", "{stdin}"]')
    with pytest.raises(BadInput, match="read files"):
        aligners.parse("aln", text, "aln.toml")
    before, several = text.split("paired = [", 1)
    interleaved = '"-t{threads}", "-K", "{batch_bases}", "{index}", "{interleaved}"]'
    text = (
        f'{before}paired = [["aln-{{size}}", {interleaved}{several[several.index("]" + chr(10) + "in_order") :]}'
    )
    aligner = aligners.parse("aln", text, "aln.toml")
    assert [aligner.on_stdin(step) for mates in (1, 2) for step in aligner.steps(mates)] == [True, True]
    assert [mates_placeholder(step) for mates in (1, 2) for step in aligner.steps(mates)] == [(0,), (0, 1)]
    argv = aligner.argv(
        aligner.steps(1)[0], index=Path("i"), reads=[None], threads=1, batch_bases=1, scratch=Path("t")
    )
    assert argv[-2:] == ["i", "-"]


def test_the_index_is_whole_or_not_there(aln, tmp_path):
    prefix = tmp_path / "idx"
    (tmp_path / "idx.a").write_bytes(b"12345")
    with pytest.raises(BadInput, match=rf"^{prefix}\.b: .*`firsttouch data"):
        aln.index_bytes(prefix)
    (tmp_path / "idx.b").write_bytes(b"12")
    assert aln.index_bytes(prefix) == 7


def test_an_index_that_lacks_a_file_is_built_again(aln, stand_in, tmp_path):
    stand_in("aln", '[ "$1" = -V ] && echo aln 1; [ "$1" = index ] && touch "$3.a" "$3.b"; exit 0')
    reference = tmp_path / "r.fa"
    reference.write_text(">r\nACGT\n")
    messages = []
    prefix = aligners.get_index(aln, reference, tmp_path / "store", say=messages.append)
    assert aligners.get_index(aln, reference, tmp_path / "store", say=messages.append) == prefix
    sha256 = atomic_files.digest(reference)
    assert aligners.get_index(aln, reference, tmp_path / "store", sha256=sha256, say=messages.append) == prefix
    Path(f"{prefix}.b").unlink()
    assert aligners.get_index(aln, reference, tmp_path / "store", say=messages.append) == prefix
    assert aln.index_bytes(prefix) == 0
    assert [line.split()[:3] for line in messages] == [["building", "the", "index"]] * 3
    assert f"it is damaged: {prefix}.b" in messages[1]


def test_a_large_index_is_taken_where_there_is_no_small_one(aln, tmp_path):
    prefix = tmp_path / "idx"
    (tmp_path / "idx.al").write_bytes(b"1234567")
    assert argvs(aln, 1, index=prefix)[0][0] == "aln-l"
    with pytest.raises(BadInput, match=rf"^{prefix}\.bl: "):
        aln.index_bytes(prefix)
    (tmp_path / "idx.bl").write_bytes(b"12")
    assert aln.index_bytes(prefix) == 9
    for suffix in (".a", ".b"):
        (tmp_path / f"idx{suffix}").write_bytes(b"1")
    assert aln.index_bytes(prefix) == 2
    assert argvs(aln, 1, index=prefix)[0][0] == "aln-s"


def test_version(aln, stand_in, monkeypatch, tmp_path):
    stand_in("aln", "echo aln 1.2-r3 >&2; exit 1")
    assert aln.version() == "1.2-r3"
    stand_in("aln", "echo what")
    with pytest.raises(RunFailed, match=r"^aln -V "):
        aln.version()
    (tmp_path / "stand-ins" / "aln").write_bytes(b"\x7fELF nonsense")
    with pytest.raises(RunFailed, match=r"^aln -V "):
        aln.version()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Missing, match=r"'aln' .*make setup.*apt-get"):
        aln.version()


def test_make_setup_installs_the_aligners_that_say_so():
    listed = (ROOT / "setup" / "debian-packages.txt").read_text(encoding="utf-8").splitlines()
    packages = {line.split()[1] for line in listed if line and not line.startswith("#")}
    for aligner in aligners.aligners().values():
        assert aligner.package in packages if aligner.package else "https://" in aligner.origin


def test_an_index_beside_its_reference_has_a_copy_of_it(stand_in, tmp_path):
    stand_in("aln", 'cp "$2" "$2.a"')
    text = TEXT.replace('"{reference}", "{index}"]', '"{index}"]\nwith_reference = true')
    aligner = aligners.parse("aln", text.replace('files = [".a", ".b"]', 'files = [".a"]'), "aln.toml")
    (tmp_path / "r.fa").write_text(">r\nACGT\n")
    aligner.build_index(tmp_path / "r.fa", tmp_path / "idx", tmp_path / "log")
    assert aligner.index_bytes(tmp_path / "idx") == 2 * len(">r\nACGT\n")
    assert [file.name for file in aligner.index_paths(tmp_path / "idx")] == ["idx", "idx.a"]


def test_words_let_a_program_map_its_index():
    def mapping(name, *argv):
        return aligners.aligner(name).mapping_argv(argv)

    assert mapping("bowtie2", "bowtie2-align-s", "-p", "1") == ["bowtie2-align-s", "--mm", "-p", "1"]
    assert mapping("minibwa", "minibwa", "map", "idx", "r") == ["minibwa", "map", "--mmap", "idx", "r"]
    snap = ["snap-aligner", "single", "idx", "-fastq", "-"]
    assert mapping("snap", *snap, "-map-", "-t", "2") == [*snap, "-map", "-t", "2"]
    assert mapping("snap", *snap) == [*snap, "-map"]
    assert mapping("bwa-mem", "bwa", "mem", "idx") == ["bwa", "mem", "idx"]
    assert aligners.aligner("bowtie2").mapping_argv(["perl", "bowtie2", "-p", "1"], 2)[2] == "--mm"


def test_building_fails_with_the_logs_end(aln, stand_in, tmp_path):
    stand_in("aln", "echo one; echo two >&2; echo three; exit 4")
    with pytest.raises(RunFailed, match=r"aln index .*status 4: two \| three"):
        aln.build_index(tmp_path / "r.fa", tmp_path / "idx", tmp_path / "log")


def test_the_program_that_builds_the_index_may_be_another_one(stand_in, tmp_path):
    stand_in("aln", "exit 0")
    text = TEXT.replace('["aln", "index"', '["no-such-aln-build"')
    with pytest.raises(Missing, match="'no-such-aln-build'"):
        aligners.parse("aln", text, "aln.toml").build_index(tmp_path / "r", tmp_path / "i", tmp_path / "log")


@pytest.mark.parametrize(
    ("old", "new", "line", "reason"),
    [
        ('program = "aln"', "", 1, "key 'program' is missing"),
        ('program = "aln"', "program = ", 1, "not TOML: Invalid value"),
        ('program = "aln"', 'program = "aln"\ncolour = "red"', 2, "unknown key 'colour'"),
        ("batch_bases = 100", "batch_bases = 0", 18, "align.batch_bases: '0'"),
        ("batch_bases = 100", "batch_bytes = 5", 11, "unknown placeholder {batch_bases}"),
        ('same = "exact"', 'same = "nearly"', 17, "align.same: 'nearly'"),
        ('same = "exact"', "", 10, "key 'same' is missing"),
        ('files = [".a", ".b"]', "files = []", 7, "index.files"),
        ('large = "l"', "", 11, "unknown placeholder {size}"),
        ('large = "l"', 'large = "l"\nloaded = ["aln", "shm"]', 9, "index.loaded: no step has {index}"),
        (
            'large = "l"',
            'large = "l"\nmapped.words = ["-m"]\nloaded = ["aln", "{index}"]',
            10,
            "index.loaded: the program either maps the files of its index or has loaded",
        ),
        ('"{index}", "{reads}"]]', '"{index}", "{interleaved}"]]', 11, "unknown placeholder {interleaved}"),
        ('"{index}", "{reads}"]]', '"{index}"]]', 11, "align.single: no step reads {reads}"),
        ('"{index}", "{reads}"]]', '"{reads}"]]', 11, "align.single: no step has {index}"),
        ('"{index}", "{reads}"]]', '"{index}", "{reads}"]', 12, "not TOML"),
        ('"{index}", "{reads}"]]', '"{index}", "{reads:>9}"]]', 11, "{reads} must be written without"),
        ('"{reads}", "{reads2}"]', '"{reads2}"]', 12, "align.paired: no step reads {reads}"),
        ('"{reads}", "{reads2}"]', '"{interleaved}", "{reads2}"]', 12, "must read nothing else"),
        ('["aln-{size}", "-t{threads}", "-K", "{batch_bases}", "{index}"', '["aln", "{index}"', 11, "no step has"),
        ('"{reference}"', '"{}"', 6, "unknown placeholder {}"),
        ('"{reference}"', '"{reference"', 6, "expected '}'"),
        ("'aln (\\S+)'", "'aln'", 3, "version.pattern: has 0 groups"),
        ('"200 MB"', '"much"', 21, "memory.instance: 'much' is not a quantity"),
        ("[memory]", "[command]\n[memory]", 20, "key 'begins' is missing"),
        ("[memory]", '[command]\nbegins = [["aln"]]\nshort = "t;"\n[memory]', 22, "command.short: 't;' is not a"),
        ("[memory]", '[command]\nbegins = [["aln"]]\n[memory]', 21, "command.begins: pipes is missing"),
        ("[memory]", '[command]\nbegins = [["aln"]]\nthreads = ["-t"]\n[memory]', 22, "'-t' is not among the"),
        (
            "[memory]",
            '[command]\nbegins = [["aln"]]\nshort = "d:"\n[command.writes]\n"{stem}{" = "-d"\n[memory]',
            23,
            "command.writes: '{stem}{' is not a file's name with {name}, {stem}, {mate}, {suffix}, {folder}, "
            "{option}",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_file_and_line(old, new, line, reason):
    assert TEXT.count(old) == 1
    with pytest.raises(BadInput) as caught:
        aligners.parse("aln", TEXT.replace(old, new), "aln.toml")
    assert str(caught.value).startswith(f"aln.toml:{line}: ")
    assert reason in str(caught.value)


@pytest.mark.parametrize("name", aligners.aligners())
def test_an_index_is_named_by_its_prefix_or_one_of_its_files(tmp_path, name):
    program = aligners.aligner(name)
    prefix = tmp_path / "hg.mmi"
    assert program.index_named(prefix) == prefix
    for large in {"", program.index.large}:
        files = [Path(f"{prefix}{suffix}{large}") for suffix in program.index.files]
        for file in files:
            file.parent.mkdir(exist_ok=True)
            file.touch()
        assert {program.index_named(path) for path in (prefix, *files)} == {prefix}
        for file in files:
            file.unlink()
