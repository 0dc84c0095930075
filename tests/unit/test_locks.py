# SPDX-License-Identifier: Apache-2.0
"""Locks: the runs of the probe, the smallest sufficient batch, and what a report concludes from the rates."""

from __future__ import annotations

import math
import random
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from factories.memory_records import NEEDED, Host
from firsttouch.benchmarks import locks, probe, profiles
from firsttouch.records.schema import Record
from firsttouch.report import model
from firsttouch.report.aspects import locks as lock_rates
from firsttouch.report.model import Absent

BATCHES = tuple(2**i for i in range(9))
RATES = st.dictionaries(st.sampled_from(BATCHES), st.lists(st.floats(0, 1e9), min_size=1), min_size=1)


def rate(batch: int, *samples: float, **more: Any) -> Record:
    case = {"lock": "spin", "parsing": "batched", "work_ns": 0, "threads": 2, "placement": "compact", "bank": 0}
    return Record(
        *("locks", "lock_records", "records/s", "higher", tuple(1e6 * s for s in samples)),  # type: ignore[arg-type]
        parameters={**case, "batch": batch, **more},
        host="n1",
    )


@given(RATES)
def test_the_smallest_batch_is_near_the_larger_ones_and_smaller_batches_are_not(
    rates: dict[int, list[float]],
) -> None:
    chosen = locks.smallest_batch(rates)
    for batch, samples in rates.items():
        larger = [sample for other, more in rates.items() if other > batch for sample in more]
        enough = not larger or median(samples) >= 0.95 * median(larger)
        assert enough if batch == chosen else batch > chosen or not enough


@pytest.mark.parametrize("right", [1, 8, 64])
def test_the_batch_at_which_a_noisy_curve_levels_off(right: int) -> None:
    """Nine batches with three repetitions each, of which a curve levels off at *right*."""
    chance = random.Random(right)  # noqa: S311 - noise
    near = 0
    for _ in range(200):
        curve = {b: [min(1, b / right) * math.exp(chance.gauss(0, 0.08)) for _ in range(3)] for b in BATCHES}
        near += right / 2 <= locks.smallest_batch(curve) <= 2 * right
    assert near >= 190


@pytest.mark.parametrize(
    ("most", "counts"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (128, [1, 2, 4, 8, 16, 32, 64, 128])]
)
def test_threads_and_the_runs_that_measure_them(most: int, counts: list[int]) -> None:
    assert locks.thread_counts(most) == counts
    *fewer, widest = locks.runs(counts, profiles.efforts()["full"])
    assert widest[:2] == [f"--threads={most}", "--batch=1,2,4,8,16,32,64,128,256"]
    assert len(fewer) == (most > 1)
    assert all("--batch=32" in options for options in fewer)


def test_a_batch_of_each_lock_from_the_output_of_the_probe(golden: Any) -> None:
    records = list(probe.parse(golden("probe_locks.jsonl")).records())
    assert {r.metric for r in records} == {"lock_records", "lock_waiting"}
    assert {(r.check, r.status) for r in records} == {("locks", "valid")}
    waiting = {r.parameters["lock"] for r in records if r.metric == "lock_waiting"}
    assert waiting == {"spin", "queue"}
    needed = locks.batches_needed(records)
    assert {r.parameters["lock"] for r in needed} == {"spin", "queue"}
    for record in needed:
        assert record.value in {1, 8, 32}
        assert (record.parameters["threads"], "batch" in record.parameters) == (2, False)
        assert f"{record.value:.0f} records at once" in locks.describe(record)
    (view,) = model.split([*records, *needed], (), None)
    (table,) = lock_rates.aspect(view).tables
    assert table.caption.endswith(": 1 µs of work (Mrecords/s)")
    assert len(table.rows) == len([r for r in records if r.metric == "lock_records"])
    assert any(row[5] for row in table.texts)


def test_a_curve_of_one_batch_or_with_an_invalid_rate_has_no_batch() -> None:
    assert locks.batches_needed([]) == []
    assert locks.batches_needed([rate(32, 1)]) == []
    curve = [rate(1, 1), rate(32, 3)]
    assert [r.value for r in locks.batches_needed(curve)] == [32]
    assert locks.batches_needed([curve[0], replace(curve[1], status="invalid", reason="wrong")]) == []
    fewer = [rate(1, 9, threads=1), rate(32, 1, threads=1)]
    assert [r.value for r in locks.batches_needed([*fewer, *curve])] == [32]


def test_sentences_of_a_host_of_two_numa_nodes() -> None:
    host = Host("n1", at_once=True)
    by_lock = ", ".join(f"{lock} {batch}" for lock, batch in NEEDED.items())
    shown = lock_rates.aspect(model.split(list(host.locks()), (), None)[0])
    assert "With 16 threads and 1 µs of work, this host needs batches of 128 records" in shown.note
    assert by_lock in shown.note
    (line,) = shown.results
    assert line.label == "one reader, 16 threads, 1 µs of work"
    assert line.value.endswith(" Mrecords/s")
    assert "lock, blocked parsing; original parsing 2." in line.compared
    assert line.compared.endswith("; needs 128 records at once")


def test_groups_of_several_banks_are_named() -> None:
    alone = [rate(32, 1, threads=1), rate(1, 1, threads=1, parsing="original")]
    several = [replace(r, parameters={**r.parameters, "bank": bank}) for r in alone for bank in (0, 1)]
    captions = [table.caption for table in lock_rates.aspect(model.split(several, (), None)[0]).tables]
    assert [f"no other work, bank {bank} (" in caption for bank, caption in enumerate(captions)] == [True, True]


def test_parameters_of_any_kind_and_rates_of_zero_make_tables() -> None:
    records = [
        rate(1, 2, 3),
        rate(32, 0, 0),
        rate(1, 0, 0, parsing="original"),
        *locks.batches_needed([rate(1, 1)]),
    ]
    values = (None, "x", [], 10**30, 0.5)
    wrong = [
        replace(record, parameters={**record.parameters, name: value})
        for record in records
        for name in ("lock", "parsing", "batch", "work_ns", "threads", "placement")
        for value in values
    ]
    for some in (records[1:], wrong):
        (view,) = model.split(some, (), None)
        aspect = lock_rates.aspect(view)
        assert aspect.results
        assert aspect.tables


def test_without_rates_the_section_states_why() -> None:
    (absent,) = lock_rates.aspect(model.split([replace(rate(1, 1), check="other")], (), None)[0]).absent
    assert absent == Absent(absent.title, "the records of this report contain none of this check")
    wrong = replace(rate(1, 1), status="invalid", reason="not every record was handed out once")
    (absent,) = lock_rates.aspect(model.split([wrong], (), None)[0]).absent
    assert isinstance(absent, Absent)
    assert "not every record was handed out once" in absent.reason
