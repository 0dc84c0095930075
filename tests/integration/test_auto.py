# SPDX-License-Identifier: Apache-2.0
"""The scenario of ``auto`` with real bwa: trials on the first reads, once and within the budget."""

import gzip
import json
import os
import random
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from factories import genomes
from factories.clocks import ManualClock
from factories.fastq_files import bgzf, text
from firsttouch.advice import auto, saved, trials
from firsttouch.genomics import fastq, launch
from firsttouch.genomics.aligners import aligner
from firsttouch.genomics.command_line import parse, with_options
from firsttouch.genomics.launch import Work
from firsttouch.host.topology import load
from firsttouch.scenarios.placement import plan

#: Bases that a thread aligns in a second of a trial.
PACE = 2 * trials.SLOWEST


@pytest.fixture(scope="module")
def inputs(lambda_work, tmp_path_factory):
    """Return the index, and two files with enough reads for trials by all threads."""
    prefix, reads, _ = lambda_work
    folder = tmp_path_factory.mktemp("auto")
    files = [folder / file.name for file in reads]
    for file, source in zip(files, reads, strict=True):
        file.write_bytes(source.read_bytes() * 3 * len(os.sched_getaffinity(0)))
    return prefix, files


@pytest.fixture(scope="module")
def few(lambda_work, tmp_path_factory):
    """Return two files with the first 3,000 pairs: three batches of 200,000 bases."""
    return genomes.first(3000, lambda_work[1], tmp_path_factory.mktemp("few"))


def chosen(*words, messages=None, **settings):
    """Return the choice for a command."""
    command = parse([str(word) for word in words])
    threads = min(command.threads, len(os.sched_getaffinity(0)))
    host = load()  # read again, because a virtual machine may get memory while tests run
    planned = plan(host, threads=threads)
    return auto.Auto(
        command, host, planned, say=([] if messages is None else messages).append, **settings
    ).choose()


def test_trials_are_made_once_and_within_the_budget(inputs, few, run_here, tmp_path, monkeypatch):
    prefix, files = inputs
    threads = len(os.sched_getaffinity(0))
    words = ["bwa", "mem", "-t", threads, "-K", 200_000, "-Y", "-R", r"@RG\tID:a\tSM:b", prefix, *files]
    scratch, folder = tmp_path / "scratch", tmp_path / "advice"
    scratch.mkdir()
    monkeypatch.setenv("FIRSTTOUCH_ADVICE", str(folder))
    run, limits, clock = launch.run, [], ManualClock()

    def limited(work, scenario, output, *, timeout, **settings):
        """Run a trial, which takes as long as it would on a quiet host, however busy this one is."""
        limits.append(timeout)
        result = run(work, scenario, output, **settings)
        seconds = work.reads.bases / (scenario.instances * scenario.threads) / PACE
        clock.sleep(seconds)
        return replace(result, seconds=seconds, aligning=seconds)

    monkeypatch.setattr(launch, "run", limited)
    first = chosen(*words, budget=0.5, scratch=scratch, clock=clock)
    assert first.reason.startswith("after "), first
    (file,) = folder.glob("*.json")
    stored = json.loads(file.read_text())
    spent = stored["details"]["budget"]
    # Each trial is stopped at the end of the budget as it is known when the trial begins.
    assert limits
    assert all(limit > 0 for limit in limits)
    assert spent["within"]
    assert spent["spent_s"] <= spent["seconds"]
    assert spent["spent_s"] == pytest.approx(sum(clock.sleeps))
    assert stored["scenario"] == first.scenario.name
    assert stored["key"]["words"] == ["-Y"]
    assert stored["details"]["command"] == list(map(str, words))
    assert list(scratch.iterdir()) == []
    # The second start makes no trials, and runs the scenario.
    done = run_here("run", "--", *words[:-2], *few)
    name = first.scenario.name
    assert done.returncode == 0, done
    assert done.stderr.splitlines()[0] == f"bwa-mem under {name}: as advised on {stored['time'][:10]}"
    flags = [int(line.split("\t", 2)[1]) for line in done.stdout.splitlines() if line[0] != "@"]
    assert sum(not flag & 0x900 for flag in flags) == 2 * 3000
    monkeypatch.setattr(auto.Auto, "advise", None)
    # Another sample of the same kind, from standard input.
    words[8], words[10:] = r"@RG\tID:c\tSM:d", ["-", "-p"]
    again = chosen(*words)
    assert (again.scenario, again.reason) == (first.scenario, f"as advised on {stored['time'][:10]}")
    saved.save(replace(next(saved.entries(print)).key), "99x-bound", None, {}, str)
    messages = []
    usual = chosen(*words, messages=messages)
    assert messages[0].startswith(f"the advice of {stored['time'][:10]} for bwa-mem does not fit this host now: ")
    assert usual.scenario.name == f"1x{len(os.sched_getaffinity(0))}-default"
    assert usual.reason.startswith("your command as it is: ")


def test_advice_for_a_command_is_told_before_it_runs(inputs, run_here, tmp_path):
    prefix, files = inputs
    words = ["bwa", "mem", "-t", len(os.sched_getaffinity(0)), "-K", 200_000, prefix, *files]
    done = run_here("advise", "--budget", "0.5", "--json", "--", *words, FIRSTTOUCH_ADVICE=tmp_path)
    assert done.returncode == 0, done
    document = json.loads(done.stdout)
    assert document["command"] == list(map(str, words))
    assert 0 < document["head"] <= 1
    best = document["recommended"]
    assert best in done.stderr
    # On a host that is too busy for two trials, there is nothing to compare and to save.
    stored = [json.loads(file.read_text())["scenario"] for file in tmp_path.glob("*.json")]
    assert stored == ([best] if document["compared"] else [])


def test_a_command_that_cannot_be_tried_runs_as_it_is(inputs, lambda_work, tmp_path, monkeypatch):
    monkeypatch.setenv("FIRSTTOUCH_ADVICE", str(tmp_path))  # other tests save advice for such commands
    prefix, files = inputs
    _, small, _ = lambda_work
    bwa = ["bwa", "mem", "-t", len(os.sched_getaffinity(0)), prefix]
    fifo = files[0].with_name("fifo")
    os.mkfifo(fifo)
    for words, reason in [
        ([*bwa, fifo], f"there is no advice for it, and {fifo} can be read only once, so there can be no trials"),
        ([*bwa, "nosuch.fq"], "there is no file nosuch.fq"),
        ([*bwa, "-"], "there is no advice for it, and - can be read only once"),
        ([*bwa, *small], "too few reads for trials that take 3.0% of the run: at least "),
        (
            ["bowtie2", "-p", bwa[3], "--no-unal", "-x", prefix, "-U", *small],
            "--no-unal leaves unaligned reads out",
        ),
    ]:
        choice = chosen(*words)
        assert choice.scenario.name == f"1x{len(os.sched_getaffinity(0))}-default"
        assert choice.reason.startswith(f"your command as it is: {reason}"), choice
    # A command that cannot be divided has the advice of any program.
    key = saved.program_key(load(), list(map(str, words)), len(os.sched_getaffinity(0)))
    saved.save(key, "1x-interleave", None, {}, str)
    choice = chosen(*words)
    assert choice.scenario.name == f"1x{len(os.sched_getaffinity(0))}-interleave"
    assert choice.reason.startswith("as advised on ")
    choice = chosen(*bwa, *files, budget=0)
    assert choice.reason == "your command as it is: there is no advice for it, and no budget for trials"


def test_a_command_is_the_same_case_as_the_aligner_with_the_same_options(lambda_work):
    prefix, files, _ = lambda_work
    group = ["-R", r"@RG\tID:a"]
    words = ["bwa", "mem", "-k17", "-t", "2", *group, "-Y", "-K", "100000", "-o", "out.sam", prefix, *files]
    key = saved.command_key(load(), parse(list(map(str, words))), 2)
    program = with_options(aligner("bwa-mem"), ["-Y", *group, "-k", "17"])
    assert key == saved.aligner_key(load(), program, prefix, threads=2, mates=2)
    assert key.words == ("-Y", "-k 17")


@pytest.mark.parametrize("own", [["-Y"], ["-Y", "-p"]])
def test_instances_of_a_trial_run_the_users_command(lambda_work, few, own):
    prefix, files = lambda_work[0], few
    inputs = ["-"] if "-p" in own else files
    command = parse(["bwa", "mem", "-t", "1", "-K", "200000", *own, str(prefix), *map(str, inputs)])
    scenario = plan(load(), threads=1).scenario("1x1-local")
    work = Work(command.aligner, prefix, fastq.inspect(files, command.batch), command=command)
    result = launch.run(work, scenario, None)
    (outcome,) = result.outcomes
    assert result.alignments.primary == 2 * work.reads.records
    assert [word for word in outcome.job.argv if word in {"-Y", "-p"}] == own
    assert result.aligning <= result.seconds
    assert not Path(outcome.job.stdout).exists()


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bgzf])
@pytest.mark.parametrize("qualities", ["#,:F", "F"])
def test_the_bases_of_a_file_are_estimated_from_its_beginning(tmp_path, pack, qualities):
    draw = random.Random(1)  # noqa: S311
    lines = ("ACGT", "+", qualities)
    reads = [[f"@r{n}", *("".join(draw.choices(line, k=100)) for line in lines)] for n in range(40_000)]
    file = tmp_path / "reads"
    file.write_bytes(pack(text(reads)))
    assert auto._about_bases(file) == pytest.approx(4e6, rel=0.02)


def test_advice_for_another_size_of_run_is_not_followed(inputs, lambda_work, tmp_path, monkeypatch):
    """Advice of a small test is not for a full run, and not for reads that leave instances without a batch."""
    monkeypatch.setenv("FIRSTTOUCH_ADVICE", str(tmp_path))
    prefix, files = inputs
    words = [str(word) for word in ("bwa", "mem", "-t", 2, "-K", 200_000, prefix, *files)]
    bases = 0.45 * sum(file.stat().st_size for file in files)
    key = saved.command_key(load(), parse(words), min(2, len(os.sched_getaffinity(0))))
    saved.save(key, "1x-local", None, {"bases": round(bases / 5)}, str)
    assert chosen(*words).scenario.name == f"1x{len(os.sched_getaffinity(0))}-local"
    saved.save(key, "1x-local", None, {"bases": round(bases / 50)}, str)
    messages = []
    choice = chosen(*words, messages=messages, budget=0)
    assert choice.scenario.name == f"1x{len(os.sched_getaffinity(0))}-default"
    assert choice.reason.startswith("your command as it is: ")
    assert re.match(
        r"the advice of \S+ for bwa-mem is not followed: it is from a run of .* and this one has about",
        messages[0],
    )
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two PUs are necessary")
    saved.save(key, "2x-bound", None, {"bases": round(bases)}, str)
    assert chosen(*words).scenario.name == f"2x{len(os.sched_getaffinity(0)) // 2}-bound"
    words[5] = str(round(bases))
    choice = chosen(*words)
    assert choice.scenario.name == f"1x{len(os.sched_getaffinity(0))}-default"
    assert choice.reason.startswith("your command as it is: ")
    assert "-bound is advised, but about" in choice.reason
    assert "are too few for its 2 instances" in choice.reason
