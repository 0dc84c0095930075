# SPDX-License-Identifier: Apache-2.0
"""The results in large letters, and what a report says where a value would mislead."""

from dataclasses import replace

import pytest

from factories.host_records import KIB, MIB, Machine
from firsttouch.report import headlines, metrics, model
from firsttouch.report.figures import latency
from firsttouch.report.metrics import Curve, by_level

CACHES = [("L1d", 32 * KIB), ("L2", MIB), ("L3", 32 * MIB)]


def curve(**ns_at):
    """A curve with a latency (ns) at each size: kib32=1.5, mib16=186."""
    sizes = {int(name[3:]) * {"kib": KIB, "mib": MIB}[name[:3]]: ns for name, ns in ns_at.items()}
    record = Machine(1, 1).latency()[0]
    points = [
        (n, replace(record, samples=(ns,), parameters={**record.parameters, "size_bytes": n}))
        for n, ns in sorted(sizes.items())
    ]
    return Curve(metrics.RANDOM, (0,), (0,), "firsttouch-probe", (), tuple(points))


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


def test_the_page_says_that_a_level_is_not_seen(monkeypatch):
    shared = curve(kib16=1.3, kib512=5.0, mib16=161.0, mib128=170.0)
    monkeypatch.setattr(metrics, "curves", lambda *_: [shared])
    monkeypatch.setattr(metrics, "cache_levels", lambda *_: CACHES)
    (view,) = model.split([record for _, record in shared.points], (), None)
    why = "161 ns at 16 MiB, as from memory: the cache is shared with others, or a part of it is reserved"
    (row,) = [line.row() for line in headlines.headlines(view) if line.label == "latency L3"]
    assert (row[1], row[-1]) == ("not seen", why)
    shown = latency._shows([shared], [], CACHES)
    assert f"L3 is not seen: {why}." in shown
    assert "161 ns in L3" not in " ".join(shown)
