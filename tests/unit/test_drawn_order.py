# SPDX-License-Identifier: Apache-2.0
"""The order of measurements: drawn by one seed, new in each round, stated in records, and repeatable."""

import json
import os
from collections import Counter
from itertools import chain

import pytest

from factories.processes import write_program
from firsttouch.benchmarks import drawn_order, probe
from firsttouch.benchmarks.drawn_order import shuffle
from firsttouch.campaign import campaigns
from firsttouch.campaign import run as running
from firsttouch.errors import BadInput
from firsttouch.records import schema, store


def test_every_item_comes_once_and_at_each_place_equally_often():
    places = Counter()
    for seed in range(1, 1201):
        ordered = shuffle("abcd", seed)
        assert sorted(ordered) == list("abcd")
        places.update(enumerate(ordered))
    # 300 are expected of each; five deviations of a binomial are 75.
    assert len(places) == 16
    assert all(225 < count < 375 for count in places.values())


def test_an_order_can_be_repeated(monkeypatch):
    monkeypatch.delenv("FIRSTTOUCH_SEED", raising=False)
    seed = drawn_order.seed()
    assert drawn_order.seed() == seed
    assert os.environ["FIRSTTOUCH_SEED"] == str(seed)
    rounds = [drawn_order.round_seed(number, "n1") for number in range(20)]
    assert len(set(rounds)) == 20
    assert rounds == [drawn_order.round_seed(number, "n1") for number in range(20)]
    assert drawn_order.round_seed(0) == seed
    monkeypatch.setenv("FIRSTTOUCH_SEED", "")
    assert drawn_order.seed() != seed


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "\u0663", "x", str(2**31)])
def test_a_wrong_seed_is_bad_input(monkeypatch, text):
    monkeypatch.setenv("FIRSTTOUCH_SEED", text)
    with pytest.raises(BadInput, match="FIRSTTOUCH_SEED"):
        drawn_order.seed()


def test_the_probe_measures_in_the_order_of_the_seed(native_probe, monkeypatch):
    sizes = ["4KiB", "8KiB", "16KiB", "32KiB", "64KiB"]
    options = ["--sanity", "--banks=0", "--pu-nodes=0", f"--sizes={','.join(sizes)}"]
    orders = {}
    for seed in (0, 1, 1, 2, 3, 4):
        order = [f"--seed={seed}"] if seed else []
        monkeypatch.setenv("FIRSTTOUCH_SEED", str(seed or 9))
        records = [*chain.from_iterable(probe.follow("latency", [*options, *order], say=lambda _: None))]
        measured = [record.parameters["size_bytes"] for record in records]
        positions = [record.order["position"] for record in records]
        assert positions == sorted({*positions})
        assert {record.order["seed"] for record in records} == {seed or 9}
        assert orders.setdefault(seed, measured) == measured
        assert sorted(measured) == orders[0]
    assert len({tuple(order) for order in orders.values()}) > 2


def test_the_order_is_in_a_run_s_records_and_not_in_a_store(tmp_path):
    """A store keeps a case's parameters once, whatever the order of its sessions was."""
    order = {"seed": 7, "step": 2, "position": 3}
    record = schema.Record("latency", "random_latency", "ns", "lower", (90.0,), {"bank": 0}, order=order)
    schema.append(tmp_path / "records.jsonl", [record])
    (read,) = schema.read(tmp_path / "records.jsonl")
    assert read.order == order
    frame = schema.to_frame([record])
    assert schema.from_frame(frame)[0].order == order
    sessions, values = store.files_content(frame)
    assert "order" not in {*sessions.columns, *values.columns}
    with pytest.raises(BadInput, match="order"):
        schema.from_dict({**json.loads(json.dumps(record.to_dict())), "order": [1]})


PROGRAM = 'echo "$2 $FIRSTTOUCH_SEED $FIRSTTOUCH_STEP" >>"$ORDER"'


def test_a_campaign_draws_its_steps_behind_the_topology_and_tells_each_its_place(tmp_path, monkeypatch):
    monkeypatch.setenv("FIRSTTOUCH_EFFORT", "smoke")
    firsttouch = str(write_program(tmp_path / "firsttouch", PROGRAM))
    fields = {"system": "local", "dataset": "lambda", "aligners": (), "repetitions": 1}
    orders = []
    for seed in ("5", "5", "6", "7", "8"):
        monkeypatch.setenv("FIRSTTOUCH_SEED", seed)
        monkeypatch.setenv("ORDER", str(tmp_path / f"order-{len(orders)}"))
        folder = tmp_path / f"c{len(orders)}"
        campaign = campaigns.create(campaigns.plan("characterize", folder, **fields))
        lines = []
        runner = running._Runner(campaign, lines.append, [firsttouch])
        runner.journal.open()
        runner.go()
        ran = [line.split() for line in (tmp_path / f"order-{len(orders)}").read_text().splitlines()]
        orders.append([aspect for aspect, _, _ in ran])
        assert sorted(orders[-1]) == sorted(step.argv[1] for step in campaign.steps)
        assert [int(place) for _, _, place in ran] == list(range(1, len(ran) + 1))
        assert len({seed_of_step for _, seed_of_step, _ in ran}) == 1
        assert any(f"FIRSTTOUCH_SEED={seed}" in line for line in lines)
        assert orders[-1][0] == "topology"
    assert orders[0] == orders[1]
    assert len({tuple(order) for order in orders}) > 2
