# SPDX-License-Identifier: Apache-2.0
"""The forms of data sets that the benchmark of real fleets reads, with made-up figures, and what it counts."""

import pytest
import real_fleets as bench

from firsttouch.errors import BadInput


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
    single, double = bench.scenarios(tmp_path)
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
    (scenario,) = bench.scenarios(tmp_path)
    assert scenario.measurements[0].parameters == {"pu_nodes": [0, 1]}
    outcome = bench.run(scenario, "made_up")
    assert (outcome.hosts, outcome.faulty, outcome.days, outcome.good_days) == (8, ["n7"], 2, 14)
    assert not outcome.blamed
    with records.open("a") as lines:
        lines.write("n7,yesterday,mine,speed,100,GB/s,higher,0\n")
    with pytest.raises(BadInput, match=r"records.csv:50: .*yesterday"):
        list(bench.scenarios(tmp_path))


def test_no_known_form(tmp_path):
    with pytest.raises(BadInput, match="neither"):
        bench.scenarios(tmp_path)
