# SPDX-License-Identifier: Apache-2.0
"""The probe's tails aspect on this host: rare slow accesses move only the percentiles beyond their share."""

import json
import re
import subprocess
import time
from itertools import accumulate, chain

import pytest

from firsttouch.benchmarks import probe, tails
from firsttouch.host import topology

NODE = topology.load().cpu_nodes[0]
BANK = topology.load().memory_nodes[0]
SMALL = ("--sizes=4MiB", "--array-bytes=8MiB", "--max-repetitions=3", f"--pu-nodes={NODE}", f"--banks={BANK}")
#: A delay (ns) that no access has by itself in 0.1 % of cases.
DELAY = 500_000


def results(*options):
    """Return the records of a short run with these options, by load and metric."""
    records = chain.from_iterable(probe.follow("tails", [*SMALL, *options]))
    return {(record.parameters["load"], record.metric): record for record in records}


@pytest.mark.parametrize(
    ("accesses", "slow", "delay"),
    # Frequent delays need not be longer than a busy host's to be distinguished from the median.
    [(20, "latency_p99", DELAY // 10), (200, "latency_p99_9", DELAY), (2000, "latency_p99_99", DELAY)],
)
def test_a_slow_access_in_so_many_moves_the_percentiles_beyond_it(accesses, slow, delay):
    by_case = results(f"--inject={accesses},{delay}", "--accesses=16384")
    moved = {metric for (load, metric), record in by_case.items() if load == "none" and record.value >= delay}
    assert moved == set(tails.PERCENTILES[tails.PERCENTILES.index(slow) :])
    assert {record.status for record in by_case.values()} == {"invalid"}


@pytest.mark.parametrize(
    ("accesses", "names"), [(1024, ["99 %", "99.9 %"]), (16384, ["99 %", "99.9 %", "99.99 %"])]
)
def test_the_line_of_progress_names_the_percentiles_of_the_records(native_probe, accesses, names):
    argv = [native_probe, "tails", *SMALL, f"--accesses={accesses}", "--jsonl"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    metrics = {json.loads(line).get("metric") for line in done.stdout.splitlines()}
    assert len(metrics & set(tails.PERCENTILES)) == 1 + len(names)
    lines = [line for line in done.stderr.splitlines() if f"tails NUMA node {NODE}, bank {BANK}" in line]
    assert lines
    for line in lines:
        assert re.findall(r"[\d.]+ %", line) == names


def test_percentiles_are_those_of_the_histogram_without_what_interrupts_delayed():
    by_case = results("--accesses=65536")
    for load in {load for load, _ in by_case}:
        last = by_case[load, tails.PERCENTILES[-1]]
        p = last.parameters
        ends, accesses, delayed = (p[f"histogram_{what}"] for what in ("ns", "accesses", "interrupted"))
        assert sum(accesses) == 65536 * last.repetitions
        assert ends == sorted(ends)
        assert all(0 <= d <= a for d, a in zip(delayed, accesses, strict=True))
        counts = [a - d for a, d in zip(accesses, delayed, strict=True)]
        for metric, share in zip(tails.PERCENTILES[:2], (0.5, 0.99), strict=True):
            place = next(i for i, so_far in enumerate(accumulate(counts)) if so_far >= share * sum(counts))
            record = by_case[load, metric]
            # A bin is an eighth of an octave wide at most. The length of a tick differs between samples.
            assert ends[place] * 0.8 <= max(record.samples)
            assert min(record.samples) <= (ends[place] * 1.13 + 2 * p["tick_ns"]) * 1.2


def test_the_period_of_refreshes_is_one_of_memory_chips_and_the_same_in_two_runs():
    """Chance would give another period within 1 % of the usual ones each time."""
    last = ("none", tails.PERCENTILES[-1])
    runs = [results("--accesses=65536")[last].parameters for _ in range(2)]
    if not all("refresh_period_ns" in p for p in runs):
        pytest.skip("no period of refreshes shows here")
    first, second = (p["refresh_period_ns"] for p in runs)
    assert first == pytest.approx(second, rel=1e-3)
    assert min(abs(first / usual - 1) for usual in (7800, 3900, 1950)) < 0.0101
    for p in runs:
        assert 0 < p["refresh_delay_ns"] < 500
        assert 0 < p["refresh_share"] <= 1


def test_delays_last_as_long_by_another_clock():
    begin = time.monotonic_ns()
    by_case = results(f"--inject=1,{DELAY}", "--accesses=64")
    accesses = sum(r.parameters["accesses"] * r.repetitions for r in by_case.values() if r.metric == "latency_p50")
    assert accesses * DELAY <= time.monotonic_ns() - begin
    # A percentile is the middle of its bin of the histogram, of which an octave has 64.
    assert min(record.value for record in by_case.values()) >= DELAY * (1 - 1 / 128)
    assert by_case["none", "latency_p50"].parameters["timer_ns"] > 0


def test_a_sample_tells_only_percentiles_beyond_which_it_has_an_access():
    by_case = results("--accesses=65")
    assert {metric for _, metric in by_case} == {tails.PERCENTILES[0], tails.PERCENTILES[1]}
    record = by_case["none", tails.PERCENTILES[1]]
    assert record.parameters["accesses"] == 128
    assert sum(record.parameters["histogram_accesses"]) == 128 * record.repetitions
