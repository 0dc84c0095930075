# SPDX-License-Identifier: Apache-2.0
"""The benchmarks of fleets, simulated ones (each rule names a bad host) and real ones (the forms of data sets)."""

import numpy as np
import pytest
import real_fleets
import simulated_fleets

from firsttouch.errors import BadInput


def test_every_rule_names_a_host_that_loses_a_third_of_all_memory():
    losses = np.zeros((len(simulated_fleets.CASES), 8, 1))
    losses[:, 5] = simulated_fleets.loss_by("memory", 0.33)[:, None]
    rates = simulated_fleets.simulated(losses, simulated_fleets.Condition(), "normal", np.random.default_rng(7))
    for rule, words_of in simulated_fleets.RULES.items():
        assert np.flatnonzero(words_of(rates) == "fail").tolist() == [5], rule
        assert "suspect" not in words_of(rates), rule


def test_rounded_values_of_many_hosts_fail_nobody():
    healthy, condition = np.zeros((len(simulated_fleets.CASES), 300, 1)), simulated_fleets.Condition(300)
    rates = simulated_fleets.simulated(healthy, condition, "rounded", np.random.default_rng(7))
    assert "fail" not in simulated_fleets.firsttouch(rates)


def test_a_link_and_a_clock_lose_nothing_else():
    for kind, metrics in (("link", 2), ("clock", 4), ("metric", 1), ("bank", 8), ("memory", 16)):
        assert np.count_nonzero(simulated_fleets.loss_by(kind, 0.1)) == metrics


@pytest.mark.parametrize("noise", ["unequal", "rounded"])
def test_a_table_has_what_was_measured(noise):
    rates = simulated_fleets.simulated(
        np.zeros((len(simulated_fleets.CASES), 4, 2)),
        simulated_fleets.Condition(),
        noise,
        np.random.default_rng(7),
    )
    table = simulated_fleets.table(rates)
    assert table.counts.sum() == len(table.value) == np.isfinite(rates).sum()
    assert np.isfinite(rates).all() == (noise == "rounded")


def test_pelt_finds_the_changes_of_a_level():
    noise = np.random.default_rng(1)
    values = np.repeat([0.0, 0.06, 0.0], [10, 12, 8]) + noise.normal(0, 0.005, 30)
    assert {10, 22} <= {*simulated_fleets._changes(values)}


def blade(serial, slots, rate):
    items = [("system", "product", "serial", serial)]
    for number in range(4):
        bank = ("memory", f"bank:0:{number}")
        items += [(*bank, "slot", f"PROC  1 DIMM  {number + 1}"), (*bank, "description", "DIMM DDR3 1600 MHz")]
        if number < slots:
            items += [(*bank, "size", str(1 << 34)), (*bank, "clock", "1600000000")]
    for pu in range(32):
        items += [("cpu", f"logical_{pu}", f"bandwidth_{size}", str(rate)) for size in ("4K", "1M", "128M", "1G")]
    items += [("cpu", "logical", f"forked_bandwidth_{size}", str(4 * rate)) for size in ("16M", "128M")]
    return repr(items)


def test_cardiff(tmp_path):
    for serial, slots, rate in (("A", 4, 7600), ("B", 1, 4900), ("C", 4, 7600)):
        (tmp_path / f"{serial}.hw_").write_text(blade(serial, slots, rate))
    single, double = real_fleets.scenarios(tmp_path)
    assert [fault.host for fault in double.faults] == ["B"]
    of_b = [(m.check, m.value) for m in single.measurements if m.host == "B"]
    assert of_b.count(("bandwidth", 4.9)) == 2
    assert ("contention", 19.6) in of_b
    assert ("configuration", 1.0) in of_b
    assert len(double.measurements) == 3 * (1 + 2 * 5)


def test_plain(tmp_path):
    rows = [
        f"n{host},2026-01-{day:02d}T00:0{minute}:00,mine,speed,{50 if host == 7 else 100},GB/s,higher,0+1\n"
        for host in range(8)
        for day in (1, 2)
        for minute in range(3)
    ]
    records = tmp_path / "records.csv"
    records.write_text("host,time,check,metric,value,unit,better,pu_nodes\n" + "".join(rows))
    (tmp_path / "truth.csv").write_text("host,begin,end\nn7,2026-01-01,\n")
    (scenario,) = real_fleets.scenarios(tmp_path)
    assert scenario.measurements[0].parameters == {"pu_nodes": [0, 1]}
    outcome = real_fleets.run(scenario, "made_up")
    assert (outcome.hosts, outcome.faulty, outcome.days, outcome.good_days) == (8, ["n7"], 2, 14)
    assert not outcome.blamed
    with records.open("a") as lines:
        lines.write("n7,yesterday,mine,speed,100,GB/s,higher,0\n")
    with pytest.raises(BadInput, match=r"records.csv:50: .*yesterday"):
        list(real_fleets.scenarios(tmp_path))


def test_no_known_form(tmp_path):
    with pytest.raises(BadInput, match="neither"):
        real_fleets.scenarios(tmp_path)
