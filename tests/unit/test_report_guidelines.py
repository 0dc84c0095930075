# SPDX-License-Identifier: Apache-2.0
"""The guideline in a report: the choice, its gain, the alternatives, and the dropped scenarios with reasons."""

import random

import pytest
from msgspec.structs import replace

from factories.host_records import Machine, built_report
from firsttouch.records.schema import Record
from firsttouch.report import guidelines, model
from firsttouch.report.guidelines import gains
from firsttouch.scenarios.placement import parse_name


def run(scenario, *samples, instances=1, threads=8, host="n1", **fields):
    policy = parse_name(scenario).policy.name
    rate = fields.pop("rate", False)
    parameters = {
        "aligner": fields.pop("aligner", "snap"),
        "dataset": "NA12878",
        "scenario": scenario,
        "instances": instances,
        "threads": threads,
        "policy": policy,
        "reads": 1000 * threads if rate else 10000,
        **({"reads_per_thread": 1000} if rate else {}),
    }
    return Record(
        "weak_scaling" if rate else "scaling" if instances == 1 else "placement",
        "throughput" if rate else "alignment_time",
        "kreads/s" if rate else "s",
        "higher" if rate else "lower",
        samples=samples,
        parameters=parameters,
        host=host,
        partition="all",
        **{"system": "amd-opteron", **fields},
    )


SLOW = run("1x64-default", 40.0, 42.0, 41.0, threads=64)
FAST = run("8x8-bound", 10.0, 10.5, 10.2, instances=8)


def choices(tmp_path, records, **options):
    """Return the guidelines, the page without figures, and the text of a ticket."""
    (tmp_path / "out").mkdir(exist_ok=True)
    _, page, document = built_report(tmp_path / "out", records, **options)
    return document["guidelines"], page, (tmp_path / "out" / "summary.md").read_text()


def test_the_fastest_scenario_is_chosen_with_its_gain_and_all_alternatives(tmp_path):
    few = run("1x8-default", 90.0, 91.0, 92.0)
    guides, page, ticket = choices(tmp_path, [SLOW, FAST, few])
    assert [(g["system"], g["aligner"]) for g in guides] == [("amd-opteron", "snap")]
    choice = guides[0]["choices"][0]
    assert (choice["recommended"], choice["default"]) == ("8x8-bound", "1x64-default")
    assert choice["gain"] == {
        "value": pytest.approx(41 / 10.2),
        "low": pytest.approx(40 / 10.5),
        "high": pytest.approx(42 / 10.0),
    }
    assert [a["scenario"] for a in choice["alternatives"]] == ["8x8-bound", "1x64-default", "1x8-default"]
    assert choice["reason"] == "the best median of 3 scenarios"
    assert "use 8x8-bound: 4.02x as fast as 1x64-default (3.81x to 4.20x, between any two" in page
    assert "snap on amd-opteron, measured, NA12878" in ticket


def test_a_scenario_that_is_not_clearly_faster_is_not_recommended(tmp_path):
    near = run("8x8-bound", 39.0, 41.5, 40.5, instances=8)
    choice = choices(tmp_path, [SLOW, near])[0][0]["choices"][0]
    assert choice["recommended"] == "1x64-default"
    assert "no scenario is clearly faster" in choice["reason"]
    assert "8x8-bound has the best median" in choice["reason"]


def nodes(count):
    return Record(
        "topology", "numa_nodes", "1", "neither", (count,), host="n1", system="amd-opteron", partition="all"
    )


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([nodes(1.0), SLOW, FAST], "one NUMA node"),
        ([nodes(2.0), run("1x64-default", 0.4, 0.41, 0.42, threads=64), FAST], "the input is too short (0.410 s)"),
        (
            [nodes(2.0), run("1x64-default", 9.0, 12.0, 13.0), run("8x8-bound", 8.0, 8.5, 8.2, instances=8)],
            "the host was not idle",
        ),
        ([nodes(2.0), replace(nodes(2.0), metric="busy_pus"), SLOW, FAST], "the host was not idle"),
        ([nodes(2.0), SLOW, FAST], ""),
    ],
)
def test_times_that_can_recommend_nothing_say_why_on_the_card_and_in_the_guideline(tmp_path, records, reason):
    guides, page, ticket = choices(tmp_path, records)
    choice = guides[0]["choices"][0]
    assert choice["withheld"] == reason
    assert choice["recommended"] == ("1x64-default" if reason else "8x8-bound") or reason.endswith("idle")
    card = page[page.index('class="card') :].partition("</section>")[0]
    assert f"snap: {f'no recommendation: {reason}.' if reason else 'use 8x8-bound'}" in card
    assert (f"no recommendation: {reason}" if reason else "use 8x8-bound") in ticket
    assert (" Why: the best" in page) == (not reason)


def test_a_run_of_both_checks_has_one_value_on_the_whole_page(tmp_path):
    """The default run was measured by the checks scaling and placement: one median, of all six repetitions."""
    again = replace(SLOW, check="placement", samples=(50.0, 52.0, 51.0), time="2026-01-01T00:00:00.000+00:00")
    _, page, document = built_report(tmp_path, [SLOW, again, FAST])
    (alternative,) = [
        a for a in document["guidelines"][0]["choices"][0]["alternatives"] if a["scenario"] == "1x64-default"
    ]
    assert (alternative["value"]["value"], alternative["repetitions"]) == (46.0, 6)
    # The table of threads and the alternatives.
    assert page.count('<td class="number">46</td>') == 2
    assert '<td class="number">41</td>' not in page


def test_the_highest_rate_is_best(tmp_path):
    slow = run("1x64-default", 100.0, 101.0, threads=64, rate=True)
    fast = run("4x16-unbound", 300.0, 310.0, instances=4, threads=16, rate=True)
    choice = choices(tmp_path, [slow, fast])[0][0]["choices"][0]
    assert choice["recommended"] == "4x16-unbound"
    assert choice["gain"]["value"] == pytest.approx(305 / 100.5)
    assert choice["gain"]["low"] == pytest.approx(300 / 101)
    assert choice["unit"] == "kreads/s"


@pytest.mark.parametrize("agree", [True, False])
def test_several_choices_have_one_recommendation_with_its_reason(tmp_path, agree):
    slow, fast = (500.0, 510.0), (900.0, 910.0)
    rates = [
        run("1x64-default", *(slow if agree else fast), threads=64, rate=True),
        run("8x8-bound", *(fast if agree else slow), instances=8, rate=True),
    ]
    guides, page, ticket = choices(tmp_path, [SLOW, FAST, *rates])
    assert len({c["recommended"] for c in guides[0]["choices"]}) == (1 if agree else 2)
    (of_runs, of_rates) = ("8x8-bound", "8x8-bound" if agree else "1x64-default")
    assert guides[0]["recommended"] == of_rates
    why = "all 2 inputs agree" if agree else f"; others differ: {of_runs} (measured"
    assert why in guides[0]["because"]
    for text in (page, ticket):
        assert why in text


def test_inputs_without_a_recommendation_do_not_agree_on_one(tmp_path):
    rates = [run("1x64-default", 500.0, threads=64, rate=True), run("8x8-bound", 900.0, instances=8, rate=True)]
    guides, page, ticket = choices(tmp_path, [nodes(1.0), SLOW, FAST, *rates])
    assert [bool(c["withheld"]) for c in guides[0]["choices"]] == [True, True]
    assert "inputs agree" not in guides[0]["because"] + page + ticket


def test_the_input_with_the_most_reads_decides(tmp_path):
    def of_input(dataset, reads, records):
        return [replace(r, parameters={**r.parameters, "dataset": dataset, "reads": reads}) for r in records]

    small = of_input(
        "small", 1000, [run("1x64-default", 50.0, 51.0, threads=64), run("2x32-bound", 90.0, 91.0, instances=2)]
    )
    large = of_input("large", 9000, [SLOW, FAST])
    for records in ([*small, *large], [*large, *small]):
        guides, _, ticket = choices(tmp_path, records)
        assert guides[0]["recommended"] == "8x8-bound"
        assert guides[0]["because"].startswith("by measured, large, 9000 reads")
        assert "others differ: 1x64-default (measured, small" in ticket


def test_invalid_scenarios_are_dropped_with_the_reason(tmp_path):
    lost = replace(run("2x32-bound", 5.0, instances=2, threads=32), status="invalid", reason="pages <elsewhere>")
    guides, page, _ = choices(tmp_path, [SLOW, FAST, lost])
    choice = guides[0]["choices"][0]
    assert choice["dropped"] == [{"scenario": "2x32-bound", "reason": "invalid: pages <elsewhere>"}]
    assert "invalid: pages &lt;elsewhere&gt;" in page
    assert "2x32-bound" not in [a["scenario"] for a in choice["alternatives"]]


def test_the_hosts_of_a_system_count_together_by_their_own_default_runs(tmp_path):
    others = [
        run("1x64-default", 80.0, 82.0, 84.0, threads=64, host="n2"),
        run("8x8-bound", 20.0, 20.5, 21.0, instances=8, host="n2"),
    ]
    choice = choices(tmp_path, [SLOW, FAST, *others])[0][0]["choices"][0]
    assert "2 hosts" in choice["title"]
    best = next(a for a in choice["alternatives"] if a["scenario"] == "8x8-bound")
    assert (best["repetitions"], best["hosts"]) == (6, 2)
    assert best["gain"]["value"] == pytest.approx(4.0, rel=0.01)
    # The value of a mean host between the two.
    assert best["value"]["value"] == pytest.approx((41 * 82) ** 0.5 / 4, rel=0.01)
    assert choice["interval"] == "95 % interval over 2 hosts"


def test_a_host_without_a_default_run_is_left_out_and_named(tmp_path):
    other = run("4x16-bound", 2.0, 2.1, 2.2, instances=4, threads=16, host="n2")
    guides, page, _ = choices(tmp_path, [SLOW, FAST, other])
    choice = guides[0]["choices"][0]
    assert "1 host" in choice["title"]
    assert [a["scenario"] for a in choice["alternatives"]] == ["8x8-bound", "1x64-default"]
    assert "n2 left out, because hosts are comparable only" in choice["reason"]
    assert "n2 left out" in page


def test_one_repetition_recommends_nothing_and_says_why(tmp_path):
    once = [run("1x64-default", 40.0, threads=64), run("8x8-bound", 10.0, instances=8)]
    elsewhere = [replace(r, host="n2", samples=(r.value * 1.08,)) for r in once[:1]]
    for records in (once, once + elsewhere):
        choice = choices(tmp_path, records)[0][0]["choices"][0]
        assert choice["recommended"] == "1x64-default"
        assert (
            "4.00x as fast as the default run, but with one repetition each, the uncertainty" in choice["reason"]
        )
        gains = {a["scenario"]: a["gain"] for a in choice["alternatives"]}
        assert gains["8x8-bound"] == {"value": pytest.approx(4.0), "low": None, "high": None}


class TestHostsThatDiffer:
    """Two hosts with all scenarios, with 1 % of noise."""

    NAMES = ("1x64-interleave", "2x32-bound", "4x16-bound", "8x8-bound", "8x8-interleave")

    def chosen(self, seed, slower, gain=1.0, swap=False):
        chance = random.Random(seed)  # noqa: S311
        hosts = {"n1": slower, "n2": lambda s: s} if swap else {"n1": lambda s: s, "n2": slower}

        def timed(name, host):
            seconds = hosts[host](10.0 / (gain if name == "8x8-bound" else 1.0))
            samples = (seconds * chance.lognormvariate(0, 0.01) for _ in range(3))
            count = int(name[0])
            return run(name, *samples, instances=count, threads=64 // count, host=host)

        records = [timed("1x64-default", host) for host in hosts]
        records += [timed(name, host) for name in self.NAMES for host in hosts]
        ((_, choice),) = guidelines.measured_choices(model.split(records, (), None))
        return choice

    @pytest.mark.parametrize("swap", [False, True])
    @pytest.mark.parametrize("slower", [lambda s: 1.08 * s, lambda s: s + 3], ids=["8 %", "3 s"])
    def test_only_a_scenario_that_is_faster_on_the_same_host_is_recommended(self, slower, swap):
        seeds = range(100)
        without_gain = [self.chosen(seed, slower, swap=swap).chosen for seed in seeds]
        assert sum(name != "1x64-default" for name in without_gain) <= 100 * 0.05
        with_gain = [self.chosen(seed, slower, gain=1.3, swap=swap) for seed in seeds]
        assert {c.chosen for c in with_gain} == {"8x8-bound"}
        assert all(c.gain.clear for c in with_gain)

    def test_the_interval_holds_the_gain(self):
        choices = [self.chosen(seed, lambda s: 1.08 * s, gain=1.3) for seed in range(100)]
        assert sum(c.gain.low <= 1.3 <= c.gain.high for c in choices) >= 95

    def test_gains_that_differ_between_hosts_widen_the_interval(self):
        def times(of_n2):
            return {"default": {"n1": [10, 10.1], "n2": [10, 10.1]}, "x": {"n1": [5, 5.05], "n2": of_n2}}

        same = gains(times([5, 5.05]), "default")["x"]
        differing = gains(times([9, 9.05]), "default")["x"]
        assert same.clear
        assert not differing.clear


def test_without_a_default_run_there_is_no_gain(tmp_path):
    choice = choices(tmp_path, [FAST])[0][0]["choices"][0]
    assert choice["gain"] is None
    assert "no valid default run" in choice["reason"]


def test_a_bad_host_makes_no_guideline_of_another_system(tmp_path):
    machine = Machine(2, 4)
    guides = choices(tmp_path, [*machine.everything(), SLOW])[0]
    assert [(g["system"], g["aligner"]) for g in guides] == [("amd-opteron", "snap"), ("example", "bwa-mem")]
