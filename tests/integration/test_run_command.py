# SPDX-License-Identifier: Apache-2.0
"""``firsttouch run`` with real programs: its output, its records, and bad input of every kind."""

import hashlib
import json
import mmap
import os
import random
import shlex
import shutil
import subprocess
import sys
from collections import Counter

import pytest

from factories import held_programs
from factories.genomes import PART, first
from factories.host_records import measured
from factories.processes import captured, wait_until
from firsttouch import BadInput, RunRequest, read_records, run_aligner
from firsttouch.execution import index_cache
from firsttouch.execution.process_runner import Watching, run_together
from firsttouch.genomics import dealing, stream
from firsttouch.host.topology import load, probe_program
from firsttouch.scenarios.placement import plan

#: Pairs of reads in the tests, and bases of a batch.
PAIRS, BATCH_BASES = 1000, 10_000
HOST = load()
SCENARIOS = [s.name for s in plan(HOST).scenarios if s.instances * s.threads == HOST.usable_pu_count]


@pytest.fixture(scope="module")
def few(lambda_work, tmp_path_factory):
    """Returns the files of the first PAIRS pairs."""
    return first(PAIRS, lambda_work[1], tmp_path_factory.mktemp("few"))


@pytest.fixture(scope="module")
def enough(lambda_work, tmp_path_factory):
    """Returns options with the number of pairs that is sampled if the aligner reads the files itself."""
    files = first(PART, lambda_work[1], tmp_path_factory.mktemp("enough"))
    return dict(zip(("reads", "reads2"), files, strict=True))


@pytest.fixture(scope="module")
def valid(lambda_work, few):
    """Returns valid options of a run."""
    given = {"aligner": "bwa-mem", "index": lambda_work[0], "reads": few[0], "reads2": few[1]}
    return given | {"batch_bases": BATCH_BASES}


def end_reads_after_samples(patch):
    """Let aligners wait for the end of their reads until all have been sampled, however few reads they have.

    They read pipes: always if there are several instances, and one of --checksum or --expect-sha256.
    """
    deal, samples = dealing.Dealer.deal, Counter()
    fields = dict(Watching._field_defaults)
    look = fields["look"]

    def look_and_count(pid, observed):
        before = observed.looks
        look(pid, observed)
        samples[pid] += observed.looks > before

    def deal_and_wait(dealer):
        samples.clear()
        deal(dealer)
        wait_until(lambda: not any(min(feed._sizes) for feed in dealer._feeds), "aligners that read")
        before = samples.copy()
        instances = len(dealer._feeds)
        wait_until(lambda: sum(samples[pid] > before[pid] for pid in list(samples)) == instances, "samples")

    patch.setattr(Watching.__new__, "__defaults__", tuple((fields | {"look": look_and_count}).values()))
    patch.setattr(dealing.Dealer, "deal", deal_and_wait)


@pytest.fixture
def align(firsttouch, run_here, valid, tmp_path):
    """Returns a function that runs a scenario; its arguments replace the valid ones, None omits one.

    It runs in this process, with other variables of the *environment*, or as a *program*. If *sampled*, it lasts
    until its instances have been sampled.
    """
    folder = tmp_path / "output"
    folder.mkdir()

    def run(name, *more, environment=None, program=False, sampled=False, **other):
        given = {**valid, "output": folder / "out.sam", **other}
        options = [f"--{k.replace('_', '-')}={v}" for k, v in given.items() if v is not None]
        argv = ["run", name, *options, *more]
        if program:
            return firsttouch(*argv)
        with pytest.MonkeyPatch.context() as patch:
            if sampled:
                end_reads_after_samples(patch)
            return run_here(*argv, **(environment or {}))

    run.folder = folder
    return run


def refused(done, status, reason, folder):
    """Check that a command ended with the documented status and message, and left nothing."""
    assert (done.returncode, done.stdout) == (status, ""), done
    assert done.stderr.count("\n") == 1, done.stderr
    assert reason in done.stderr
    assert done.stderr.startswith("firsttouch: ")
    assert list(folder.iterdir()) == []


def alignments(text):
    return [li for li in text.splitlines() if not li.startswith("@")]


@pytest.fixture(scope="module")
def whole(lambda_work, few):
    """Returns the output of bwa itself."""
    argv = ["bwa", "mem", "-v", "1", "-t", "2", "-K", f"{BATCH_BASES}", lambda_work[0], *few]
    return captured(argv, check=True).stdout


def test_the_topology_is_read_once(align, tmp_path):
    """On large hosts, the probe reads thousands of files of the kernel."""
    starts, probe = tmp_path / "starts", tmp_path / "probe"
    probe.write_text(
        f'#!/bin/sh\necho >>{shlex.quote(str(starts))}\nexec {shlex.quote(str(probe_program()))} "$@"\n'
    )
    probe.chmod(0o755)
    done = align("1x-default", environment={"FIRSTTOUCH_PROBE": probe})
    assert done.returncode == 0, done.stderr
    assert starts.read_text() == "\n"


def test_a_campaign_of_all_aligners_skips_those_that_are_not_installed(run_here, tmp_path):
    common = ("--system", "local", "--campaign", tmp_path / "c", "--no-collect")
    programs = tmp_path / "programs"
    programs.mkdir()
    where = {"PATH": str(programs), "FIRSTTOUCH_EFFORT": "smoke", "FIRSTTOUCH_MEASURED_ALIGNERS": "all"}
    done = run_here("campaign", "run", "strategy", *common, "--step", "gem3-*", **where)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("'gem-mapper' is not on PATH: install it from https://") == 1
    shown = run_here("campaign", "collect", tmp_path / "c", **where)
    assert shown.stdout.count("gem3 is not installed") == 1, shown.stdout
    common = (*common[:3], tmp_path / "named", "--no-collect", "--aligner", "gem3")
    done = run_here("campaign", "run", "strategy", *common, **where)
    assert done.returncode == 1
    assert "failed" in done.stderr
    done = run_here("run", "1x-default", "--aligner", "gem3", "--dataset", "lambda", **where)
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)


def test_throughput(align, tmp_path):
    given = {"output": None, "reads_per_thread": 500, "repetitions": 2, "records": tmp_path / "r.jsonl"}
    done = align("1x-unbound", "--json", sampled=True, **given)
    assert done.returncode == 0, done.stderr
    (record,) = measured(tmp_path / "r.jsonl")
    assert (record.check, record.metric, record.unit, record.better) == (
        *("weak_scaling", "throughput"),
        *("kreads/s", "higher"),
    )
    p = record.parameters
    assert abs(p["reads"] / 2 - 500 * p["threads"]) <= 100
    assert record.samples == tuple(p["reads"] / 1000 / s for s in p["aligning_seconds"])
    assert all(a <= s for a, s in zip(p["aligning_seconds"], p["seconds"], strict=True))
    reason = "repeats reads to measure throughput: leave --output out"
    refused(align("1x-default", reads_per_thread=2000), 2, reason, align.folder)


def described(lines, name):
    """Check that the only @PG line has the user's command and the scenario, and names no temporary file."""
    (line,) = [li for li in lines if li.startswith("@PG")]
    fields = dict(field.split(":", 1) for field in line.split("\t")[1:])
    assert list(fields) == ["ID", "PN", "VN", "CL", "DS"]
    assert fields["CL"].startswith(f"firsttouch run {name} --aligner=bwa-mem ")
    assert f": {name}, {name.split('x')[0]} x " in fields["DS"]
    assert " threads of: bwa mem " in fields["DS"]
    assert not [gone for gone in ("/dev/fd", ".firsttouch-") if gone in line]


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario(align, whole, tmp_path, name):
    done = align(name, "--checksum", "--json", f"--records={tmp_path / 'records.jsonl'}", sampled=True)
    assert done.returncode == 0, done.stderr
    assert "placement verified" in done.stderr
    text = (tmp_path / "output" / "out.sam").read_text()
    assert alignments(text) == alignments(whole)
    assert text.count("@PG\t") == text.count("@SQ\t") == 1
    assert text.startswith("@SQ")
    if not name.startswith("1x"):
        described(text.splitlines(), name)
    document = json.loads(done.stdout)
    (record,) = measured(tmp_path / "records.jsonl")
    assert json.loads(json.dumps(record.to_dict())) == document
    p = record.parameters
    assert (record.status, record.reason, record.unit) == ("valid", "", "s")
    assert (p["scenario"], p["reads"], p["batch_bases"]) == (name, 2 * PAIRS, BATCH_BASES)
    assert p["alignments_sha256"] == hashlib.sha256("\n".join([*alignments(whole), ""]).encode()).hexdigest()
    assert record.software["bwa-mem"]
    assert ("index_cache" in p, len(p["index_cached_bytes"])) == (False, 1)
    assert len(record.placement_asked) == len(record.placement_found) == p["instances"]
    for asked, actual in zip(record.placement_asked, record.placement_found, strict=True):
        assert actual["looks"] >= 1
        assert set(actual["pus"]) <= set(asked["pus"])
        assert sum(actual["pages"].values()) > 0


def test_a_script_runs_an_aligner_as_the_command_does(lambda_work, enough, tmp_path, capfd):
    output, kept = tmp_path / "out.sam", tmp_path / "records.jsonl"
    asked = {"aligner": "bwa-mem", "scenario": SCENARIOS[0], "index": lambda_work[0], "output": output, **enough}
    ran = run_aligner(RunRequest(**asked, program=["-Y"], records=kept))
    assert (ran.fault, list(ran.files)) == ("", [output])
    assert read_records(kept) == list(ran.records)
    assert (ran.records[0].metric, ran.records[0].parameters["reads"]) == ("alignment_time", 2 * PART)
    assert f"{SCENARIOS[0]} (1/1): " in capfd.readouterr().err
    with pytest.raises(BadInput, match="--batch-bases 0 is not from 1 to "):
        run_aligner(RunRequest(**asked, batch_bases=0))


def test_the_index_cache_is_put_into_one_state_before_every_repetition(align, lambda_work, enough, tmp_path):
    if index_cache.file_system(tmp_path) in index_cache.IN_MEMORY:
        pytest.skip(f"{tmp_path} is in memory: nothing of it can be dropped")
    index = tmp_path / "own"
    index.mkdir()
    for file in lambda_work[0].parent.glob("index.*"):
        shutil.copy(file, index)
    size = sum(file.stat().st_size for file in index.iterdir())
    seen = {}
    for state, count in (("cold", 2), ("local", 1)):
        options = (f"--repetitions={count}", f"--index-cache={state}", "--checksum", "--json")
        done = align("1x-default", *options, **enough, index=index / "index")
        assert done.returncode == 0, done.stderr
        seen[state] = json.loads(done.stdout)
        assert seen[state]["parameters"]["index_cache"] == state
    assert seen["cold"]["parameters"]["index_cached_bytes"] == [0, 0]
    before = seen["local"]["placement_found"][0]["index_cache"]
    assert (before["state"], before["size"], before["cached"], before["unknown"]) == ("local", size, size, "")
    assert list(before["pages"]) == [str(seen["local"]["placement_asked"][0]["numa_nodes"][0])]
    with (index / "index.bwt").open("rb") as stream, mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ) as mapping:
        assert bytes(mapping)
        given = {"index": index / "index", "index_cache": "cold", "program": True}
        done = align("1x-default", "--checksum", "--json", **given)
    assert done.returncode == 1
    record = json.loads(done.stdout)
    assert (record["status"], record["reason"].startswith("index cache cold: ")) == ("invalid", True)


def test_own_options_of_the_aligner_go_to_every_instance(align, lambda_work, few, tmp_path):
    own = ["-Y", "-R", r"@RG\tID:a\tSM:{b}", "-T", "60"]
    done = align("2x1-unbound", "--json", "--", *own)
    assert done.returncode == 0, done
    assert json.loads(done.stdout)["parameters"]["aligner"] == shlex.join(["bwa-mem", *own])
    argv = ["bwa", "mem", "-v", "1", "-t", "2", "-K", "10000", *own, lambda_work[0], *few]
    whole = captured(argv, check=True).stdout
    text = (tmp_path / "output" / "out.sam").read_text()
    assert alignments(text) == alignments(whole)
    header = [line for line in text.splitlines() if line.startswith("@")]
    assert [line for line in header if line.startswith("@RG")] == ["@RG\tID:a\tSM:{b}"]
    assert shlex.join(own) in next(line for line in header if line.startswith("@PG"))


def test_repetitions_text_and_counters(align, enough, tmp_path):
    done = align(SCENARIOS[0], "--repetitions=2", **enough)
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'output' / 'out.sam'}\n")
    assert done.stderr.count("placement verified") == 2
    if shutil.which("perf") is None:
        pytest.skip("perf is not on PATH")
    done = align(SCENARIOS[0], "--counters", "--json", **enough)
    assert done.returncode == 0, done.stderr
    by_metric = {r["metric"]: r for r in json.loads(done.stdout)}
    assert {"alignment_time", "page_faults", "context_switches", "cpu_migrations"} <= set(by_metric)
    assert by_metric["page_faults"]["value"] > 100
    assert all(r["check"] == "counters" and r["status"] == "valid" for r in by_metric.values())


def test_other_alignments_than_expected_are_invalid(align):
    done = align(SCENARIOS[0], f"--expect-sha256={'0' * 64}", "--json", sampled=True)
    assert done.returncode == 1
    record = json.loads(done.stdout)
    assert (record["status"], "alignments differ" in record["reason"]) == ("invalid", True)
    assert done.stderr.splitlines()[-1].startswith("firsttouch: invalid: the alignments differ")


def test_pipes_are_read_once(align, few, lambda_work, tmp_path):
    pipe = tmp_path / "pipe"
    argv = ["bwa", "mem", "-v", "1", "-K", "10000", lambda_work[0], few[0]]
    expected = captured(argv, check=True).stdout
    single = {"reads": None, "reads2": None}
    os.mkfifo(pipe)
    with subprocess.Popen(["cp", few[0], pipe]):
        done = align("2x1-unbound", "--reads", pipe, "--json", **single)
    assert done.returncode == 0, done
    assert json.loads(done.stdout)["parameters"]["reads"] == 1000
    text = (align.folder / "out.sam").read_text()
    assert alignments(text) == alignments(expected)
    assert f" {pipe}\n" in next(line for line in text.splitlines(True) if line.startswith("@PG"))


@pytest.mark.parametrize("name", [SCENARIOS[0], SCENARIOS[-1]])
def test_the_index_of_another_genome(align, tmp_path, name):
    rng = random.Random(7)  # noqa: S311
    (tmp_path / "other.fa").write_text(f">other\n{''.join(rng.choices('ACGT', k=50_000))}\n")
    captured(["bwa", "index", "-p", tmp_path / "other", tmp_path / "other.fa"], check=True)
    done = align(name, index=tmp_path / "other")
    refused(done, 2, "reads map: is this the index of another genome?", tmp_path / "output")


@pytest.mark.parametrize("wrong", [("o.bam", False, "SAM"), ("o.sam.gz", False, "SAM"), ("o.sam", True, "BAM")])
def test_an_output_whose_name_says_another_form(lambda_work, few, tmp_path, wrong):
    name, sort, form = wrong
    asked = {"aligner": "bwa-mem", "scenario": SCENARIOS[0], "index": lambda_work[0], "reads": few[0]}
    with pytest.raises(BadInput, match=f" {form}: "):
        run_aligner(RunRequest(**asked, output=tmp_path / name, sort=sort))


@pytest.fixture
def bare(tmp_path):
    """Returns a function that makes a PATH with only these programs."""

    def make(*programs):
        folder = tmp_path / "bare"
        folder.mkdir(exist_ok=True)
        for program in programs:
            (folder / program).symlink_to(shutil.which(program))
        return {"PATH": str(folder)}

    return make


def test_without_numactl(align, tmp_path, bare):
    path = bare("bwa", "setpriv")
    name = next(n for n in SCENARIOS if n.startswith("1x") and n.endswith("-interleave"))
    done = align(name, environment=path)
    refused(done, 3, "'numactl' is not on PATH", tmp_path / "output")
    assert align("1x-default", environment=path).returncode == 0  # which needs none


def test_without_other_programs(align, tmp_path, bare):
    done = align("1x-default", environment=bare("numactl"))
    refused(done, 3, "'bwa' is not on PATH", tmp_path / "output")
    assert "apt-get install" in done.stderr
    done = align("1x-default", environment={"FIRSTTOUCH_PROBE": str(tmp_path / "none")})
    refused(done, 3, "none, which is not a program", tmp_path / "output")


def test_scenarios_that_are_none_and_those_of_other_hosts(align, tmp_path):
    refused(align("Best"), 2, "no scenario 'Best'", tmp_path / "output")
    refused(align("1024x-bound"), 3, "cannot be done here: scenario 1024x-bound", tmp_path / "output")
    if "2x1-bound" in SCENARIOS:
        refused(align("2x-bound", batch_bases=None), 3, "too few for 2 instances", tmp_path / "output")


PIN = "pu=$(taskset -cp $$ | sed 's/.*: //; s/[,-].*//')"


#: Pins all threads of the program, and those that it started meanwhile.
PIN_ALL = """\
while taskset -acp $pu $program > /dev/null
    grep -h Cpus_allowed_list: /proc/$program/task/*/status | grep -qv "\\s$pu$"
do :; done"""
#: BWA gets its last file of reads when it has been sampled with its threads. It never had more of them before.
SAMPLED_BWA = """\
{before}
mkfifo in out
words=$#
for word do
    shift
    words=$((words - 1))
    [ $words = 0 ] || set -- "$@" "$word"
done
{pinning} {bwa} "$@" in > out &
program=$!
exec 8< out 9> in
while [ $(ls /proc/$program/task | wc -l) -lt 2 ]; do :; done
{after}
{wait}
cat "$word" >&9 &
exec 9>&-
cat <&8
wait $program
"""


@pytest.mark.usefixtures("held_go_on")
@pytest.mark.skipif(len(HOST.allowed_pus) < 2, reason="needs two PUs")
@pytest.mark.parametrize(
    "parts",
    [
        # Before, around and after its start.
        ("taskset -cp $pu $$ > /dev/null", "", ""),
        ("", "taskset -c $pu", ""),
        # The first sample shows the right placement.
        ("sh -c '{wait}'", "taskset -c $pu", ""),
        ("", "", PIN_ALL),
    ],
)
def test_double_pinning_is_never_just_slow(align, stand_in, tmp_path, monkeypatch, parts):
    monkeypatch.chdir(tmp_path)
    bwa, wait = shutil.which("bwa"), held_programs.shell_wait(tmp_path)
    before, pinning, after = (part.format(wait=wait) for part in parts)
    script = SAMPLED_BWA.format(bwa=bwa, wait=wait, before=before, pinning=pinning, after=after)
    stand_in("bwa", f"[ $# = 0 ] && exec {bwa}\n{PIN}\n{script}")
    name = next(n for n in SCENARIOS if n.startswith("1x") and n.endswith("-default"))
    options = ("--checksum", "--json", f"--records={tmp_path / 'records.jsonl'}")
    done = align(name, *options)
    assert done.returncode == 1, done
    record = json.loads(done.stdout)
    assert record["status"] == "invalid"
    assert "threads are held on PUs" in record["reason"]
    assert "INVALID" in done.stderr
    assert measured(tmp_path / "records.jsonl")[0].status == "invalid"


@pytest.mark.usefixtures("held_go_on")
def test_another_memory_policy_is_seen(align, stand_in, tmp_path):
    """The waiting program has more memory than bwa needs for few reads, so the sample covers most of it."""
    bwa = shutil.which("bwa")
    wait = held_programs.python_wait(tmp_path)
    code = f"memory = bytearray(8 << 20); {wait}; import sys; os.execv('{bwa}', ['{bwa}', *sys.argv[1:]])"
    stand_in("bwa", f'[ $# = 0 ] && exec {bwa}\nexec numactl --localalloc {sys.executable} -S -c "{code}" "$@"')
    name = next(n for n in SCENARIOS if n.startswith("1x") and n.endswith("-interleave"))
    done = align(name, "--json")
    assert done.returncode == 1, done
    assert "memory policy is local, requested was interleave" in json.loads(done.stdout)["reason"]


def test_unpaired_leaves_the_second_file_of_a_dataset_out(lambda_part, run_here):
    options = ("1x-default", "--aligner", "bowtie2", "--dataset", "lambda", "--json")
    done = run_here("run", *options, "--unpaired", **lambda_part)
    assert (done.returncode, json.loads(done.stdout)["parameters"]["reads"]) == (0, PART), done.stderr


@pytest.fixture
def unseen(monkeypatch, lambda_work, tmp_path, run_cli):
    """Returns a function that runs a command on instances that end before they can be sampled."""
    prefix, reads, _ = lambda_work
    watching = Watching(look=lambda pid, sampled: None)
    monkeypatch.setattr(
        stream, "run_together", lambda *args, **more: run_together(*args, **more | {"watching": watching})
    )
    few = tmp_path / "few.fq"
    few.write_text("".join(reads[0].read_text().splitlines(keepends=True)[:400]))
    return lambda *argv: run_cli(*argv, "--aligner=bwa-mem", f"--index={prefix}", f"--reads={few}")


def test_alignments_are_good_though_nothing_is_known_of_the_placement(unseen, tmp_path):
    out = tmp_path / "out.sam"
    status, printed, messages = unseen("run", SCENARIOS[0], "-o", str(out))
    assert (status, printed) == (0, f"{out}\n")
    assert len(alignments(out.read_text())) >= 100
    assert "the output is complete, its placement is unverified: instance 0: " in messages
    assert "INVALID" not in messages


@pytest.mark.parametrize("option", ["--records=r.jsonl", "--repetitions=2", "--checksum", "-o"])
def test_a_measurement_is_invalid_where_nothing_is_known_of_the_placement(unseen, tmp_path, monkeypatch, option):
    monkeypatch.chdir(tmp_path)
    out = ["-o", "out.sam"]
    status, _, messages = unseen(
        "run", SCENARIOS[0], *out, *([option] if option != "-o" else [f"--expect-sha256={'0' * 64}"])
    )
    assert status == 1
    assert "INVALID: instance 0: the placement cannot be verified" in messages
    assert messages.splitlines()[-1].startswith("firsttouch: invalid: ")
    if option == "--records=r.jsonl":
        assert [r.status for r in measured(tmp_path / "r.jsonl")] == ["invalid"]
