# SPDX-License-Identifier: Apache-2.0
"""The texts of a report where a value would mislead."""

import pytest
from msgspec.structs import replace

from factories.host_records import KIB, MIB, Machine, built_report
from firsttouch.judge.judging import judge
from firsttouch.report.aspects import latency
from firsttouch.report.aspects.latency import Curve, by_level
from firsttouch.systems.definition import Undescribed
from firsttouch.units import quantity

CACHES = [("L1d", 32 * KIB), ("L2", MIB), ("L3", 32 * MIB)]


def curve(**ns_at):
    """A curve with a latency (ns) at each size: kib32=1.5, mib16=186."""
    sizes = {int(name[3:]) * {"kib": KIB, "mib": MIB}[name[:3]]: ns for name, ns in ns_at.items()}
    record = Machine(1, 1).latency()[0]
    points = [
        (n, replace(record, samples=(ns,), parameters={**record.parameters, "size_bytes": n}))
        for n, ns in sorted(sizes.items())
    ]
    return Curve(latency.RANDOM, (0,), (0,), "firsttouch-probe", (), tuple(points))


@pytest.mark.parametrize(
    ("ns_at", "seen"),
    [
        ({"kib16": 1.3, "kib512": 5.0, "mib16": 40.0, "mib128": 110.0}, ["L1d", "L2", "L3", "memory"]),
        # A virtual machine with a share of the L3 cache: at half of its size, loads come from memory.
        ({"kib16": 1.3, "kib512": 5.0, "mib3": 16.0, "mib16": 161.0, "mib128": 170.0}, ["L1d", "L2", "memory"]),
        # Nothing was measured beyond the caches.
        ({"kib16": 1.3, "kib512": 5.0, "mib16": 40.0}, ["L1d", "L2", "L3"]),
    ],
)
def test_a_cache_level_as_slow_as_memory_is_not_seen(ns_at, seen):
    levels = by_level(curve(**ns_at), CACHES)
    assert [level.name for level in levels if level.seen] == seen


def test_the_bandwidth_on_the_card_is_among_the_results(tmp_path):
    """It includes the lines that stores read first: the results name the measured value that it rests on."""
    records = Machine(1, 4).bandwidth()
    verdicts = judge(records, Undescribed(records[0].system))
    _, _, document = built_report(tmp_path, records, alone=verdicts)
    (expected,) = verdicts[0].expected
    (line,) = [h for h in document["hosts"][0]["headlines"] if h["text"] == quantity(expected.reaches, "GB/s")]
    copy = max(r.value for r in records if r.metric == "copy_bandwidth" and r.parameters["stores"] == "regular")
    assert expected.reaches == pytest.approx(1.5 * copy)
    assert quantity(copy, "GB/s") in line["compared"]


@pytest.mark.parametrize("others", ["", "others used 2.9 PUs (sh 2.9), and "])
def test_a_busy_host_is_named_on_the_page_the_terminal_and_in_a_ticket(tmp_path, others):
    records = [replace(r, samples=(1.0, 2.0, 3.0)) for r in Machine(1, 4).contention()]
    busy = replace(
        records[0], check="topology", metric="busy_pus", samples=(2.9,), parameters={"programs": "sh 2.9"}
    )
    summary, page, _ = built_report(tmp_path, [*records, *([busy] if others else [])])
    for text in (page, summary.table(), (tmp_path / "summary.md").read_text()):
        assert f"This host was not idle: {others}2 of 2 metrics vary" in " ".join(text.split())
        assert ("Do not use its rates, latencies and times." in " ".join(text.split())) == bool(others)
    assert summary.table().endswith("Measure again when it is idle.")
