# SPDX-License-Identifier: Apache-2.0
"""``firsttouch run`` with real programs: the user's command by hand and placed gives the same alignments."""

import contextlib
import gzip
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from factories import small_parts
from factories.genomes import built, first, installed, records, written
from factories.processes import started, wait_until
from firsttouch import AlignRequest, RunRequest, align, cli, run_aligner
from firsttouch.cli import run_command
from firsttouch.errors import ProgramFailed
from firsttouch.execution import pu_claims
from firsttouch.genomics import division, sam, stream
from firsttouch.genomics.aligners import aligner
from firsttouch.genomics.index_copies import has_several_parts
from firsttouch.host.topology import load

TWO = "2x1-bound"
FIRSTTOUCH = (sys.executable, small_parts.__file__)
needs_two = pytest.mark.skipif(len(load().allowed_pus) < 2, reason="needs two PUs")
#: Pairs of reads in the tests: enough for several small parts of each instance.
COUNT = 600


@pytest.fixture(scope="module")
def reads(lambda_work, tmp_path_factory):
    """Returns the files of read pairs (mate 1, mate 2), with comments in SAM's format for -C."""
    folder = tmp_path_factory.mktemp("reads")
    files = []
    for mate, file in enumerate(lambda_work[1]):
        files.append(folder / f"r_{mate + 1}.fq")
        lines = (record.split(b"\n", 1) for record in records(file)[:COUNT])
        files[-1].write_bytes(b"".join(b"%s BC:Z:ACGT\n%s" % (name.split()[0], rest) for name, rest in lines))
    return files


@pytest.fixture(scope="module")
def index(lambda_work, tmp_path_factory):
    """Returns a function that returns the index of an aligner, and skips without the aligner."""
    return lambda name: built(installed(name), lambda_work[2], tmp_path_factory)


def by_hand(*argv, **options):
    done = subprocess.run(list(map(str, argv)), capture_output=True, check=False, **options)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.fixture
def placed(capfdbinary, monkeypatch):
    """Returns a function that runs ``firsttouch run`` in this process with small parts."""
    monkeypatch.setattr(division, "PART_BYTES", division.PART_BYTES // 32)

    def run(*argv, status=0):
        words = ["run", *map(str, argv)]
        # The output's header has the command.
        monkeypatch.setattr(sys, "argv", ["firsttouch", *words])
        capfdbinary.readouterr()
        done = subprocess.CompletedProcess(words, cli.main(words), *capfdbinary.readouterr())
        assert done.returncode == status, done.stderr.decode()
        return done

    return run


def body(text):
    return [line for line in text.splitlines(keepends=True) if not line.startswith(b"@")]


#: Real commands with the options that pipelines use: aligner, words, and how many mates they read.
COMMANDS = {
    "bwa mem, read group, soft clipping": (
        "bwa-mem",
        "bwa mem -t2 -K 25000 -Y -R @RG\\tID:a\\tSM:b INDEX R1 R2",
        2,
    ),
    "bwa mem, comments, all": ("bwa-mem", "bwa mem -t 2 -K 12500 -Ca INDEX R1", 1),
    "bwa mem, interleaved": ("bwa-mem", "bwa mem -p -t 2 -K 25000 INDEX R12", 2),
    "bowtie2, very sensitive": (
        "bowtie2",
        "bowtie2 --very-sensitive --rg-id a --rg SM:b -p 2 --reorder -x INDEX -1 R1 -2 R2",
        2,
    ),
    "bowtie2, all": ("bowtie2", "bowtie2 -k 3 --local --threads=2 --reorder -x INDEX -U R1,R2", 1),
    "bowtie": ("bowtie", "bowtie -S -p 2 --reorder --best -x INDEX -1 R1 -2 R2 -X 1000", 2),
    "hisat2": (
        "hisat2",
        "hisat2 -p 2 --reorder --no-spliced-alignment --no-temp-splicesite -x INDEX -1 R1 -2 R2",
        2,
    ),
    "snap": ("snap", "snap-aligner paired INDEX R1 R2 -t 2 -b- -o -sam -", 2),
    "minimap2": ("minimap2", "minimap2 -a -x sr -t 2 -R @RG\\tID:a INDEX.mmi R1 R2", 2),
    "minimap2, mates in one file": ("minimap2", "minimap2 -ax sr -t 2 -Y --MD INDEX.mmi R12", 1),
    "minimap2, two files of long reads": ("minimap2-map-ont", "minimap2 -ax map-ont INDEX.mmi R1 R2", 1),
    "minibwa": ("minibwa", "minibwa map -t 2 -K 13k -Y -R @RG\\tID:a INDEX R1 R2", 2),
    "bwa-mem3": ("bwa-mem3", "bwa-mem3 mem -t 2 -K 12500 -Y -C INDEX R1 R2", 2),
}


@needs_two
@pytest.mark.parametrize("case", COMMANDS)
def test_the_users_command_gives_the_same_alignments(placed, case, reads, index, tmp_path):
    name, text, mates = COMMANDS[case]
    program = aligner(name)
    if not text.endswith(" R1"):
        # Half of the reads of both files fill a part for each instance, as all reads of one file do.
        reads = first(COUNT // 2 + 50, reads, tmp_path)
    (both,) = written(tmp_path, [records(file) for file in reads], interleaved=True)
    files = {"R1": reads[0], "R2": reads[1], "R12": both, "R1,R2": f"{reads[0]},{reads[1]}"}
    prefix = index(name)
    argv = [str(files.get(word, word)).replace("INDEX", str(prefix)) for word in text.split(" ")]
    expected = by_hand(*argv)
    done = placed(TWO, "--", *argv)
    assert "INVALID" not in done.stderr.decode()
    assert "got no reads" not in done.stderr.decode()
    settle = (
        (lambda lines: list(sam.unambiguous_fields(lines, mates))) if program.align.same == "settled" else list
    )
    settle = settle if program.align.in_order else sorted
    assert settle(body(done.stdout)) == settle(body(expected))
    header = [line for line in done.stdout.splitlines() if line.startswith(b"@")]
    groups = [line for line in expected.splitlines() if line.startswith((b"@RG", b"@SQ"))]
    assert [line for line in header if line.startswith((b"@RG", b"@SQ"))] == groups
    (program_line,) = [line for line in header if line.startswith(b"@PG")]
    assert f"{TWO}, 2 x 1 threads".encode() in program_line
    assert b"/dev/fd" not in program_line


@pytest.fixture(scope="module")
def bwa(reads, index):
    """Returns the command of bwa mem for both mates, and its alignments by hand."""
    argv = ["bwa", "mem", "-v", "1", "-t", "2", "-K", "25000", str(index("bwa-mem")), *map(str, reads)]
    return argv, body(by_hand(*argv))


#: How often long_bwa has all reads.
TIMES = 16


@pytest.fixture(scope="module")
def long_bwa(reads, index, tmp_path_factory):
    """Returns the same for all reads several times, so that each part of a run takes long enough to be sampled."""
    folder = tmp_path_factory.mktemp("long")
    files = [folder / file.name for file in reads]
    for file, once in zip(files, reads, strict=True):
        file.write_bytes(once.read_bytes() * TIMES)
    argv = ["bwa", "mem", "-v", "1", "-t", "2", "-K", "100000", str(index("bwa-mem")), *map(str, files)]
    return argv, body(by_hand(*argv))


@needs_two
@pytest.mark.parametrize("form", [(2, 1), (3, 1), (3, 2)], ids="{0[0]} of a name, {0[1]} files".format)
def test_reads_of_one_name_stay_together(placed, reads, index, tmp_path, form):
    """minimap2 takes all reads that follow each other and have one name for one template."""
    size, mates = form
    prefix, files = index("minimap2"), [tmp_path / f"{number}.fq" for number in range(mates)]
    of_mates = [records(file) for file in reads]
    of_files = of_mates if mates == 2 else [[r for pair in zip(*of_mates, strict=True) for r in pair]]
    for file, of_file in zip(files, of_files, strict=True):
        renamed = (b"@g%d\n%s" % (n // size, r.split(b"\n", 1)[1]) for n, r in enumerate(of_file))
        file.write_bytes(b"".join(renamed))
    argv = ["minimap2", "-ax", "sr", "-t", "2", f"{prefix}.mmi", *map(str, files)]
    expected = body(by_hand(*argv))
    assert body(placed(TWO, "--", *argv).stdout) == expected
    options = dict(zip(("reads", "reads2"), files, strict=False))
    for changes in ({}, {"repetitions": 2}):
        output = tmp_path / "out.sam"
        run_aligner(
            RunRequest(aligner="minimap2", scenario=TWO, index=prefix, output=output, **options, **changes)
        )
        assert body(output.read_bytes()) == expected


def test_a_script_aligns_as_the_command_does(bwa, tmp_path, capfd):
    argv, expected = bwa
    output = tmp_path / "out.sam"
    output.touch(0o600)
    aligned = align(argv, AlignRequest("1x-default", output=output))
    assert body(output.read_bytes()) == expected
    assert output.stat().st_mode & 0o777 == 0o600
    assert (aligned.sample, aligned.document["files"], aligned.document["command"]) == ("out", [str(output)], argv)
    assert "bwa-mem under 1x2-default: " in capfd.readouterr().err
    # On standard output, runs of several inputs keep different names.
    packed = tmp_path / "s7.fq.gz"
    packed.write_bytes(gzip.compress(Path(argv[-2]).read_bytes()))
    assert align([*argv[:-2], str(packed)], AlignRequest("1x-default")).sample == "s7"
    broken = tmp_path / "broken.fq"
    broken.write_text("no read")
    with pytest.raises(ProgramFailed, match="bwa"):
        align(
            [*argv[:-2], "--no-such-option", str(broken)], AlignRequest("1x-default", output=tmp_path / "none.sam")
        )
    assert not (tmp_path / "none.sam").exists()


def test_one_instance_runs_the_command_as_it_is(placed, bwa, reads, index, tmp_path):
    """Its placement is verified. Descriptors of the shell and standard input go to the program."""
    argv, expected = bwa
    # A run that is long enough to be sampled.
    many = [tmp_path / file.name for file in reads]
    for target, file in zip(many, reads, strict=True):
        target.write_bytes(8 * file.read_bytes())
    done = placed("1x-interleave", "--", *argv[:-2], *many)
    assert body(done.stdout) == body(by_hand(*argv[:-2], *many))
    assert b"placement verified" in done.stderr
    words = ("run", "1x-default", "--", *argv[:-2])
    script = f"{shlex.join((*FIRSTTOUCH, *words))} <(cat {reads[0]}) -"
    with reads[1].open() as mates:
        assert body(by_hand("bash", "-c", script, stdin=mates)) == expected


@needs_two
def test_pus_and_memory_that_were_not_granted_are_named(placed, bwa, tmp_path):
    argv, expected = bwa
    huge = [word if word != "25000" else "2000000000000" for word in argv]
    pu = min(os.sched_getaffinity(0))
    line = ["taskset", "-c", str(pu), *FIRSTTOUCH, "run", "1x-default", "--json", "-o", tmp_path / "out.sam", "--"]
    done = subprocess.run(
        [*map(str, line), *huge], env={**os.environ, "SLURM_JOB_ID": "7"}, capture_output=True, check=True
    )
    pus, memory = json.loads(done.stdout)["lacking"]
    assert re.fullmatch(r"2 threads .* may use 1 of the host's \d+ PUs: sbatch --cpus-per-task=2 grants them", pus)
    assert re.fullmatch(r"about \S+ \SiB of memory are needed, .*: sbatch --mem=\d+G grants it", memory)
    assert [text.encode() in done.stderr for text in (pus, memory)] == [True, True]
    assert body((tmp_path / "out.sam").read_bytes())
    placed("1x-default", "--json", "-o", tmp_path / "out.sam", "--", *argv)
    assert body((tmp_path / "out.sam").read_bytes()) == expected


@needs_two
def test_reads_come_from_pipes(bwa, reads):
    argv, expected = bwa
    words = " ".join(argv[:-2])
    script = f"{shlex.join(FIRSTTOUCH)} run {TWO} -- {words} <(cat {reads[0]}) <(gzip -c {reads[1]})"
    assert body(by_hand("bash", "-c", script)) == expected


@needs_two
@pytest.mark.parametrize("form", ["two files", "interleaved"])
def test_pairs_with_empty_mates(placed, reads, index, tmp_path, form):
    """After trimming, mates may have no bases: Bowtie 2 writes one record for a pair without mate 2."""
    mates = [records(file) for file in reads]
    for number, pair in enumerate(zip(*mates, strict=True)):
        for mate, record in enumerate(pair):
            if number % (7, 5)[mate] == 0:
                mates[mate][number] = record.split(b"\n")[0] + b"\n\n+\n\n"
    files = written(tmp_path, mates, interleaved=form == "interleaved")
    given = zip(("-1", "-2") if form == "two files" else ("--interleaved",), files, strict=True)
    argv = ["bowtie2", "-p", "2", "--reorder", "-x", index("bowtie2"), *itertools.chain(*given)]
    expected = body(by_hand(*argv))
    assert body(placed("--share-host", TWO, "--", *argv).stdout) == expected
    assert len(expected) < 2 * COUNT


@needs_two
def test_a_sorted_file_after_a_kill(long_bwa, stand_in, tmp_path):
    """A run that is killed leaves no output, and the same command starts again."""
    argv, expected = long_bwa
    out, held, begun = tmp_path / "output" / "out.bam", tmp_path / "held", tmp_path / "begun"
    out.parent.mkdir()
    command = [*FIRSTTOUCH, "run", "-o", out, "--sort", TWO, "--", *argv]
    # The aligner waits, as long as there is a FIFO. It is called without mem for its version.
    os.mkfifo(held)
    hold = f"touch {begun}; [ ! -p {held} ] || read -r _ <{held}"
    stand_in("bwa", f'if [ "$1" = mem ]; then {hold}; fi\nexec {shutil.which("bwa")} "$@"')
    with started(command, stderr=subprocess.PIPE) as process:
        wait_until(begun.exists, "an instance")
        process.send_signal(signal.SIGKILL)
        process.communicate()  # until all that it started have ended
    held.unlink()
    assert not out.exists()
    done = subprocess.run([*command[:3], "--json", *command[3:]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["placement"] == "verified"
    assert document["reads"] == 2 * TIMES * COUNT
    assert document["output_cpu_seconds"] > 0
    shown = by_hand("samtools", "view", "--no-PG", out)
    assert sorted(shown.splitlines()) == sorted(line.rstrip(b"\n") for line in expected)
    assert sorted(path.name for path in out.parent.iterdir()) == ["out.bam", "out.bam.bai"]


@pytest.mark.parametrize("name", ["1x-default", pytest.param(TWO, marks=needs_two)])
def test_the_reader_of_the_output_goes(bwa, tmp_path, name):
    argv, _ = bwa
    command = [*FIRSTTOUCH, "run", "--share-host", name, "--", *argv]
    with (
        (tmp_path / "errors").open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        assert process.stdout.readline().startswith(b"@SQ")
        process.stdout.close()
        assert process.wait() == 128 + signal.SIGPIPE
    written = (tmp_path / "errors").read_text()
    assert "firsttouch: error" not in written
    assert "instance" not in written


@needs_two
def test_output_that_is_not_sam_comes_from_one_instance(placed, index, reads, tmp_path):
    argv = ["minimap2", "-x", "sr", "-t", "2", f"{index('minimap2')}.mmi", *reads]
    assert placed("--", *argv).stdout == by_hand(*argv)
    done = placed(TWO, "--", *argv, status=2)
    assert b"this command runs as one instance only: it does not write SAM without -a" in done.stderr
    done = placed("-o", tmp_path / "out.bam", "--", *argv, status=2)
    assert b"need SAM, which the command does not write without -a: add -a" in done.stderr


def running(marker):
    """Return the processes with *marker* in their environment, by the name of their program.

    Of samtools, only the one that sorts: another one, which prints its version, ends at once.
    """
    pids = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if marker.encode() in (process / "environ").read_bytes():
                name = (process / "comm").read_text().strip()
                if name != "samtools" or b"sort" in (process / "cmdline").read_bytes().split(b"\0"):
                    pids[name] = int(process.name)
    return pids


@needs_two
@pytest.mark.parametrize(("victim", "number"), [(None, "SIGTERM"), ("bwa", "SIGKILL"), ("samtools", "SIGTERM")])
def test_a_kill_leaves_nothing(bwa, tmp_path, stand_in, victim, number):
    """Whichever process is killed while alignments are written: no output, no temporary file, no process."""
    argv, _ = bwa
    marker = f"MARK={tmp_path}"
    many = [tmp_path / Path(file).name for file in argv[-2:]]
    for target, source in zip(many, argv[-2:], strict=True):
        target.write_bytes(80 * Path(source).read_bytes())
    command = [*FIRSTTOUCH, "run", "-o", tmp_path / "out.bam", "--sort", TWO, "--", *argv[:-2], *many]
    # The real program may end before it is seen; the script waits after it.
    real, held = tmp_path / "real-bwa", tmp_path / "held"
    real.symlink_to(shutil.which("bwa"))
    os.mkfifo(held)
    stand_in("bwa", f'[ $# = 0 ] && exec {real}\n{real} "$@"; read -r _ <{held}')
    there, pids = sorted(tmp_path.iterdir()), {}

    def have_begun():
        pids.clear()
        pids.update(running(marker))
        return {"bwa", "samtools"} <= pids.keys()

    expected = {None: 128 + signal.SIGTERM, "bwa": 128 + signal.SIGKILL, "samtools": 1}
    with started(command, stderr=subprocess.DEVNULL, env={**os.environ, "MARK": str(tmp_path)}) as process:
        wait_until(have_begun, "the aligner and the output's program")
        os.kill(pids[victim] if victim else process.pid, getattr(signal, number))
        assert process.wait(120) == expected[victim]
    wait_until(lambda: not running(marker), "the end of all processes")
    assert sorted(tmp_path.iterdir()) == there


@needs_two
def test_progress(placed, bwa, tmp_path, monkeypatch):
    argv, _ = bwa
    monkeypatch.setattr(stream, "_PROGRESS_INTERVAL", 0.01)
    monkeypatch.setattr(run_command, "_PROGRESS_SECONDS", 0.0)
    done = placed("--progress", "text", "-o", tmp_path / "out.sam", TWO, "--", *argv)
    assert re.search(rb"^[\d,]+ reads, [\d,]+ reads/s, .*$", done.stderr, re.MULTILINE)
    assert f"{2 * COUNT:,} reads (".encode() in done.stderr


@needs_two
def test_instances_with_different_headers_are_refused(placed, reads, index, stand_in, tmp_path):
    script = (
        f'[ $# = 0 ] && exec {shutil.which("bwa")}\n{shutil.which("bwa")} "$@" | sed "s/^@PG/@RG\\tID:$$\\n@PG/"'
    )
    stand_in("bwa", script)
    words = ("bwa", "mem", "-t", 2, "-K", 25_000, index("bwa-mem"), *reads)
    failed = placed(TWO, "-o", tmp_path / "out.sam", "--", *words, status=1)
    assert b"the headers of instances 0 and 1 differ: '@RG\\tID:" in failed.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["stand-ins"]


@needs_two
def test_the_status_is_that_of_the_aligner(placed, bwa, stand_in):
    stand_in("bwa", f"[ $# = 0 ] && exec {shutil.which('bwa')}\necho sick >&2; exit 7")
    for name in ("1x-default", TWO):
        done = placed(name, "--", *bwa[0], status=7)
        assert b"bwa ended with status 7" in done.stderr
        assert body(done.stdout) == []


@needs_two
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--json", TWO], "--json needs -o FILE"),
        (["-o", "out.txt", TWO], "its name does not end with"),
        (["--output-threads", "9999", TWO], "--output-threads 9999: this process may use "),
        (["4x-bound"], "4x-bound has 4 or more threads, and the command requests 2: raise its"),
        (["2x4-bound"], "2x4-bound has 2 x 4 threads, and the command requests 2: raise its"),
    ],
)
def test_what_cannot_be_is_refused_before_the_run(placed, bwa, tmp_path, words, reason):
    with contextlib.chdir(tmp_path):
        done = placed(*words, "--", *bwa[0], status=2)
    assert reason in done.stderr.decode()
    assert done.stdout == b""
    assert not [*tmp_path.iterdir()]


def test_a_command_that_cannot_be_divided_is_not(placed, index, reads):
    argv = ["bowtie2", "--no-unal", "-p", "2", "-x", index("bowtie2"), "-U", reads[0]]
    done = placed("2x-bound", "--", *argv, status=2)
    assert b"--no-unal" in done.stderr
    assert sorted(body(placed("--", *argv).stdout)) == sorted(body(by_hand(*argv)))


@needs_two
def test_an_index_of_several_parts_is_refused(placed, reads, lambda_work, index, tmp_path):
    """Instances read pipes, and minimap2 would find no reads for the second part."""
    index("minimap2")
    reference = tmp_path / "two.fa"
    reference.write_text(f"{lambda_work[2].read_text()}>second\n{'ACGTTGCATT' * 4000}\n")
    by_hand("minimap2", "-x", "sr", "-I", "45k", "-d", tmp_path / "two.mmi", reference)
    words = ("minimap2", "-ax", "sr", "-t", "2", tmp_path / "two.mmi", reads[0])
    refused = placed(TWO, "--", *words, status=2)
    assert b"two.mmi has several parts" in refused.stderr
    assert refused.stdout == b""
    assert placed("1x-default", "--", *words).stdout == by_hand(*words)
    given = (
        "--aligner",
        "minimap2",
        "--index",
        tmp_path / "two",
        "--reads",
        reads[0],
        "--output",
        tmp_path / "o.sam",
    )
    assert b"minimap2 wrote no @SQ lines: its index has several parts" in placed(TWO, *given, status=2).stderr
    # The index of one part, something else, and the beginning of an index.
    whole = (tmp_path / "two.mmi").read_bytes()
    second = whole.rindex(b"MMI\2")
    for content in (whole[:second], whole[second:], whole[:100], b"MMI\2" + b"\xff" * 40, b"", b"text"):
        (tmp_path / "one.mmi").write_bytes(content)
        assert not has_several_parts(tmp_path / "one.mmi")


def test_a_command_that_needs_more_memory_than_estimated_still_runs(placed, bwa, reads):
    """By hand it would run too. Its batches of two gigabases are never full."""
    argv = ["bwa", "mem", "-v1", "-t2", "-K", "2000000000", bwa[0][-3], str(reads[0])]
    expected = body(by_hand(*argv))
    for scenario in ((), ("1x-default",)):
        assert body(placed(*scenario, "--", *argv).stdout) == expected


@needs_two
@pytest.mark.parametrize("content", [b"", gzip.compress(b"")], ids=["plain", "gzip"])
def test_an_input_without_reads_gives_what_the_aligner_gives(placed, bwa, tmp_path, content):
    """A sample may be empty, and several instances may be advised for such commands."""
    empty = tmp_path / "empty.fq"
    empty.write_bytes(content)
    pipe, writing = os.pipe()
    os.set_inheritable(pipe, True)
    os.write(writing, content)
    os.close(writing)
    expected = by_hand(*bwa[0][:-2], empty).splitlines()[:-1]
    for source in (empty, f"/dev/fd/{pipe}"):
        done = placed(TWO, "--", *bwa[0][:-2], source)
        assert done.stdout.splitlines()[:-1] == expected
        assert (b"the reads are too few" if source == empty else b"no reads: bwa-mem runs") in done.stderr
    os.close(pipe)
    # The aligner would wait for another writer of a named pipe.
    named = tmp_path / "named"
    os.mkfifo(named)
    with subprocess.Popen(["cp", empty, named]):
        assert b"named: no reads" in placed(TWO, "--", *bwa[0][:-2], named, status=2).stderr


@needs_two
def test_the_scenario_of_few_reads_is_claimed_reported_and_can_be_named(placed, bwa, reads, tmp_path, monkeypatch):
    """It keeps all threads of the command."""
    few, claimed, claim = tmp_path / "few.fq", [], pu_claims.claim_pus
    few.write_bytes(b"".join(records(reads[0])[:2]))
    monkeypatch.setattr(pu_claims, "claim_pus", lambda s, *rest: (claimed.append(s), claim(s, *rest))[1])
    argv = ["--json", "-o", tmp_path / "few.sam", "--", *["bwa", "mem", "-v1", "-t2"], bwa[0][-3], few]
    names = [json.loads(placed(TWO, *argv).stdout)["scenario"]["name"]]
    names.append(json.loads(placed(*names, *argv).stdout)["scenario"]["name"])
    assert names == [scenario.name for scenario in claimed] == ["1x2-default"] * 2


def test_the_aligners_own_output_is_sam_whatever_its_name(placed, index, reads, tmp_path):
    out = tmp_path / "out.txt"
    placed("1x-default", "--", *f"bowtie2 -p 2 -x {index('bowtie2')} -U {reads[0]} -S {out}".split(" "))
    assert len(body(out.read_bytes())) == COUNT
