# SPDX-License-Identifier: Apache-2.0
"""The records that summarize a curve of latency under load."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import force_setattr

from firsttouch.benchmarks import loaded_latency
from firsttouch.benchmarks.cases import Cases
from firsttouch.benchmarks.profiles import efforts
from firsttouch.host.topology import NumaNode, Pu, Topology
from firsttouch.records.schema import Record

RATES = (0, 0.5, 1)


def points(loads, latencies, **parameters):
    """Return the records of a curve; *loads* and *latencies* have the samples of each rate."""
    return [
        Record(
            "loaded_latency", metric, unit, better, tuple(samples), {"rate": rate, "load": "local", **parameters}
        )
        for rate, load, latency in zip(RATES, loads, latencies, strict=True)
        for metric, unit, better, samples in (
            ("loaded_latency", "ns", "lower", latency),
            ("load_bandwidth", "GB/s", "higher", load),
        )
    ]


@pytest.mark.parametrize(
    ("curve", "expected"),
    [
        ([(1, 100), (10, 120), (20, 150)], 20),  # never doubles: the largest load
        ([(1, 100), (10, 200), (20, 400)], 10),  # exactly at a point
        ([(1, 100), (20, 150), (18, 350)], 20),  # a saturated memory moves less
        ([(1, 100), (10, 300), (20, 100)], 20),  # one slow point on a busy host
        ([(5, 100)], 5),
    ],
)
def test_saturation(curve, expected):
    assert loaded_latency.saturation(curve) == pytest.approx(expected)


@given(st.lists(st.tuples(st.floats(0, 1e3), st.floats(1, 1e5)), min_size=1, max_size=12))
def test_saturation_lies_between_the_unloaded_point_and_the_peak(curve):
    loads = [load for load, _ in curve]
    assert loads[0] <= loaded_latency.saturation(curve) <= max(loads) * (1 + 1e-12)


def test_each_repetition_of_a_curve_is_a_sample():
    curve = points([(1, 2), (10, 12), (20, 18)], [(100, 110), (150, 150), (250, 400)], read_share=1)
    unloaded, saturated, peak = loaded_latency.curve_records(curve)
    assert unloaded.samples == (100, 110)
    assert saturated.samples == pytest.approx((15, 12 + 6 * 70 / 250))
    assert peak.samples == (20, 18)
    assert {tuple(r.parameters.items()) for r in (unloaded, saturated, peak)} == {
        (("load", "local"), ("read_share", 1))
    }
    assert [(r.unit, r.better) for r in (unloaded, peak)] == [("ns", "lower"), ("GB/s", "higher")]


def test_curves_end_where_the_next_begins():
    curves = [points([(1,), (5,), (9,)], [(90,), (95,), (99,)], read_share=share) for share in (1, 0.5)]
    records = [r for batch in loaded_latency.curves([curves[0][:3], curves[0][3:] + curves[1]]) for r in batch]
    assert [r.parameters["read_share"] for r in records if "rate" not in r.parameters] == [1] * 3 + [0.5] * 3
    assert len(records) == 18


def test_a_curve_without_all_points_has_no_figures():
    curve = points([(1,), (5,), (9,)], [(90,), (95,), (99,)])
    assert loaded_latency.curve_records(curve[2:]) == []
    assert loaded_latency.curve_records(curve[:-1]) == []
    assert loaded_latency.curve_records([]) == []


def test_an_interrupted_run_keeps_its_last_curve():
    def stopped():
        yield points([(1,), (5,), (9,)], [(90,), (95,), (99,)])
        raise KeyboardInterrupt

    curves = loaded_latency.curves(stopped())
    next(curves)
    assert [r.metric for r in next(curves)] == ["unloaded_latency", "saturation_bandwidth", "peak_bandwidth"]
    with pytest.raises(KeyboardInterrupt):
        next(curves)


def test_an_invalid_point_makes_the_curve_invalid():
    curve = points([(1,), (5,), (9,)], [(90,), (95,), (99,)])
    force_setattr(curve[3], "status", "invalid")
    force_setattr(curve[3], "reason", "a page is on NUMA node 1")
    assert {(r.status, r.reason) for r in loaded_latency.curve_records(curve)} == {
        ("invalid", "a page is on NUMA node 1")
    }


@pytest.mark.parametrize(
    ("pus", "banks", "expected"),
    [
        ((1,), (0,), []),
        ((2,), (0,), ["local"]),
        ((2,), (0, 1), ["local", "outgoing"]),  # the second one has memory only
        ((1, 1), (0, 1), ["incoming"]),
        ((2, 2), (0, 1), ["local", "outgoing", "incoming"]),
    ],
)
def test_loads_of_a_host(pus, banks, expected):
    numbers = [(node, core) for node, count in enumerate(pus) for core in range(count)]
    host = Topology(
        numa_nodes=tuple(
            NumaNode(bank, tuple(i for i, (node, _) in enumerate(numbers) if node == bank), 1 << 30)
            for bank in banks
        ),
        pus=tuple(Pu(i, i, 0, node) for i, (node, _) in enumerate(numbers)),
        caches=(),
        distances={},
        allowed_pus=frozenset(range(len(numbers))),
        allowed_nodes=frozenset(banks),
    )
    assert Cases(host, efforts()["full"]).loads(0) == expected
