# SPDX-License-Identifier: Apache-2.0
"""A loss that hosts share is named as such, in every place that judges a fleet."""

import json

import pytest
from test_verdict import COPIES, rates, system_of

from firsttouch import cli
from firsttouch.judge.judging import judged
from firsttouch.records import samples_table
from firsttouch.records.schema import append
from firsttouch.systems.definition import Undescribed

REFERENCE = {**COPIES, "tolerance": {"lower": "-2 %"}}
SENTENCE = "lost about 4 % of the same metrics: an update, or references that are out of date; no host is held"


def fleet(*losses):
    """Return the records of hosts; *losses* has for each host the loss in each of four banks, or one for all."""
    return [
        record
        for host, loss in enumerate(losses)
        for bank in range(4)
        for record in rates(
            *(10 * (1 - (loss[bank] if isinstance(loss, tuple) else loss)) for _ in range(5)),
            host=f"n{host}",
            parameters={"bank": bank, "pu_nodes": [0]},
        )
    ]


ONE_OF_FOUR = [tuple(0.04 if bank == host % 4 else 0.0 for bank in range(4)) for host in range(8)]


@pytest.mark.parametrize(
    ("losses", "hosts", "count", "metrics"),
    [
        ([0.04] * 8, "01234567", 8, 4),
        ([0.04] * 6 + [0, 0], "012345", 8, 4),
        # A host that lost much more does not share the loss; one with a further bad metric does.
        ([0.03, 0.04, 0.05, 0.04, (0.04, 0.04, 0.04, 0.3), 0.25], "01234", 6, 4),
        ([(0.04, 0, 0, 0.04)] * 5 + [0], "01234", 6, 2),
        # Half of the hosts, two hosts, other metrics, other losses, no loss.
        ([0.04] * 4 + [0] * 4, None, 0, 0),
        ([0.04] * 2, None, 0, 0),
        (ONE_OF_FOUR, None, 0, 0),
        ([0.03, 0.08, 0.2, 0.5, 0.9], None, 0, 0),
        ([0.0] * 5, None, 0, 0),
        ([-0.5] * 5, None, 0, 0),
    ],
)
def test_what_most_hosts_lost(tmp_path, losses, hosts, count, metrics):
    common = judged(samples_table.of_records(fleet(*losses)), system_of(tmp_path, REFERENCE)).common_loss
    if hosts is None:
        assert common is None
        return
    assert ("".join(host[1:] for host in common.hosts), common.count, common.metrics) == (hosts, count, metrics)
    assert common.loss == pytest.approx(0.04)


def test_hosts_that_lack_what_the_facts_state_are_compared_with_all_hosts(tmp_path):
    memory = {"check": "topology", "metric": "memory", "unit": "GiB", "better": "neither", "parameters": {}}
    records = [r for host in range(8) for r in rates(3.0 if host < 3 else 3.9, host=f"n{host}", **memory)]
    fleet_judged = judged(samples_table.of_records(records), system_of(tmp_path))
    assert [fleet_judged.verdict(host).verdict for host in ("n0", "n7")] == ["fail", "undecided"]
    assert fleet_judged.common_loss is None


def test_a_fleet_without_references_loses_nothing_as_a_whole():
    assert judged(samples_table.of_records(fleet(*[0.04] * 8)), Undescribed("s")).common_loss is None


def test_validate_report_and_prometheus_say_so(tmp_path, monkeypatch, run_cli):
    monkeypatch.setenv("FIRSTTOUCH_SYSTEMS", str(tmp_path))
    system_of(tmp_path, REFERENCE)
    for number, losses in (("8", [0.04] * 6 + [0, 0]), ("4", [0.04] * 4)):
        records, count = tmp_path / f"{number}.jsonl", 6 if number == "8" else 4
        append(records, fleet(*losses))
        done = run_cli("validate", "--system", "s", records)
        assert done.status == 1
        assert done.out.splitlines()[0] == f"{count} of {number} hosts {SENTENCE}"
        assert SENTENCE in json.loads(run_cli("validate", "--system", "s", records, "--json").out)["common_loss"]
        assert cli.main(["report", "--system", "s", str(records), "-o", str(tmp_path / number)]) == 0
        for name in ("index.html", "summary.md", "summary.json"):
            text = " ".join((tmp_path / number / name).read_text().split())
            assert SENTENCE in text, name
        (line,) = [
            line
            for line in (tmp_path / number / "summary.prom").read_text().splitlines()
            if line.startswith("firsttouch_common_loss_ratio{")
        ]
        assert line.startswith('firsttouch_common_loss_ratio{system="s"} 0.0')
        assert float(line.split()[1]) == pytest.approx(0.04)
