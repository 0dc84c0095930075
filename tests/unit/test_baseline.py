# SPDX-License-Identifier: Apache-2.0
"""References that a fleet teaches, and the system file that stores them."""

import json
import random
import re

import pytest
import yaml
from msgspec.structs import replace
from test_verdict import LIMITS, of_copies, rates, system_of

from firsttouch.judge import baseline
from firsttouch.judge.judging import judge
from firsttouch.records import samples_table
from firsttouch.records.schema import append
from firsttouch.systems import references
from firsttouch.systems.definition import load


@pytest.fixture(autouse=True)
def systems(tmp_path, monkeypatch):
    """Lets commands find the systems in the folder of the test."""
    monkeypatch.setenv("FIRSTTOUCH_SYSTEMS", str(tmp_path))


def repetitions(hosts=40, count=4, error=0.01, spread=0.0, seed=1, **levels):
    """Return the repetitions of each host; *levels* gives the level of some hosts (n3=0.9), others have 1."""
    rng = random.Random(seed)  # noqa: S311
    own = {f"n{i}": levels.get(f"n{i}", 1 + rng.gauss(0, spread)) for i in range(hosts)}
    return {host: [100 * level * (1 + rng.gauss(0, error)) for _ in range(count)] for host, level in own.items()}


def baseline_of(records, system):
    """Return the references that *records* teach about *system*."""
    return baseline.learnt(samples_table.of_records(records), system)


def fleet(hosts=20, count=5, **levels):
    """Return the records of a fleet."""
    values_by_host = repetitions(hosts, count, **levels)
    return [r for host, values in values_by_host.items() for r in rates(*values, host=host)]


def two_kinds(hosts=40, apart=0.09, **others):
    """Return the levels of a fleet in which every other host is slower."""
    return {f"n{i}": 1 - apart if i % 2 else 1.0 for i in range(hosts)} | others


class TestDivided:
    def test_a_baseline_names_both_groups_and_learns_from_the_hosts_of_the_option(self, tmp_path, run_cli):
        of_copies(tmp_path)
        append(tmp_path / "r.jsonl", fleet(hosts=40, error=0.005, **two_kinds()))
        argv = ("baseline", "--system", "s", tmp_path / "r.jsonl")
        before = (tmp_path / "s.yaml").read_text()
        done = run_cli(*argv)
        assert done.status == 2
        assert "two groups of hosts" in done.err
        assert "n[0,2,4" in done.err
        assert (tmp_path / "s.yaml").read_text() == before
        worse = ",".join(f"n{i}" for i in range(1, 40, 2))
        done = run_cli(*argv, "--hosts", worse)
        assert done.status == 0, done.err
        (learnt,) = [r for r in load(tmp_path / "s.yaml").references if r.error]
        assert learnt.value == pytest.approx(91, rel=0.01)
        assert "fleet of 20 hosts" in learnt.source
        for wrong in ("", "n[0", "n[0-99999999999]", "other", "@all"):
            done = run_cli(*argv, "--hosts", wrong)
            assert (done.status, len(done.err.splitlines())) == (2, 1), wrong

    def test_a_baseline_reports_a_larger_detectable_loss(self, tmp_path, run_cli):
        of_copies(tmp_path)
        append(tmp_path / "r.jsonl", fleet(hosts=60, error=0.002, spread=0.02))
        done = run_cli("baseline", "--system", "s", tmp_path / "r.jsonl")
        assert done.status == 0, done.err
        assert re.search(r"1 of 1 references find only a larger loss than 5.0%: up to [678]\.\d%", done.out)
        fleet_baseline = baseline_of(fleet(hosts=60, error=0.002, spread=0.08), _without_references())
        assert not fleet_baseline.learnt
        assert "good hosts differ too much" in fleet_baseline.not_learnt[0][1]


def put(text, fleet_baseline):
    """Return the text of a system's file with the references of a baseline."""
    return references.with_learnt(text, (learnt.reference for learnt in fleet_baseline.learnt))


class TestBaseline:
    def test_the_file_that_is_written_judges_the_next_host(self, tmp_path, run_cli):
        of_copies(tmp_path)
        file = tmp_path / "s.yaml"
        before = file.read_text()
        records = tmp_path / "records.jsonl"
        append(records, fleet(n7=0.8))
        argv = ("baseline", "--system", "s", records)
        done = run_cli(*argv)
        assert done.status == 0, done.err
        assert re.search(r"left out: n7: copy, NUMA 0 to bank 0: \d+\.\d % below the others\n", done.out)
        system = load(file)
        (learnt,) = [r for r in system.references if r.error]
        assert learnt.value == pytest.approx(100, rel=0.01)
        assert "fleet of 19 hosts" in learnt.source
        assert system.reference("bandwidth", "copy_bandwidth", {"pu_nodes": [0], "bank": 0}) == learnt
        assert judge(rates(*[92.0] * 5, host="new"), system)[0].verdict == "fail"
        assert judge(rates(100.5, host="new"), system)[0].verdict == "pass"
        # A second run replaces the learnt references and leaves all else unchanged.
        once = file.read_text()
        assert run_cli(*argv).status == 0
        assert file.read_text() == once
        assert yaml.safe_load(references.without_learnt(once)) == yaml.safe_load(before)
        assert sorted(p.name for p in tmp_path.iterdir()) == ["records.jsonl", "s.yaml"]

    @pytest.mark.parametrize(
        "text",
        [
            "a: 1\nreferences: []\n",
            "a: 1\n",
            "references:\n  - {x: 1}\nb: 2\n",
            "references: []\nb: 2\n",
            "references: [{x: 1}]\n\n# end",
        ],
    )
    def test_other_content_of_the_file_stays(self, text):
        fleet_baseline = baseline_of(fleet(), _without_references())
        written = put(text, fleet_baseline)
        old, new = yaml.safe_load(text), yaml.safe_load(written)
        assert len(new.pop("learnt")) == 1
        assert old == new
        more = f"{written}\nc: 3  # added by hand\n"
        assert yaml.safe_load(references.without_learnt(more)) == {**old, "c": 3}
        assert yaml.safe_load(put(more, fleet_baseline))["c"] == 3

    @pytest.mark.parametrize("text", ['GB/s", check: "x', "x\ny: z", "*a", "}]", "x # y", "\x1b\x85\u2028"])
    def test_no_text_of_a_record_is_a_key_of_the_file(self, text):
        records = [replace(r, unit=text, parameters={**r.parameters, "kernel": text}) for r in fleet()]
        (reference,) = yaml.safe_load(put("a: 1\n", baseline_of(records, _without_references())))["learnt"]
        assert reference["value"].endswith(f" {text}")
        assert reference["parameters"]["kernel"] == text
        assert reference.keys() == {"check", "metric", "parameters", "value", "tolerance", "error", "source"}

    def test_references_of_the_file_are_not_learnt(self, tmp_path):
        entry = {"check": "bandwidth", "metric": "copy_bandwidth", "value": "60 GB/s", "source": "order"}
        same = {"pu_nodes": [0], "bank": 0}
        system = system_of(tmp_path, {**entry, "parameters": same, "tolerance": LIMITS["higher"]})
        fleet_baseline = baseline_of(fleet(), system)
        assert not fleet_baseline.learnt
        assert "already has a reference for it" in fleet_baseline.not_learnt[0][1]

    def test_one_size_of_a_curve_is_learnt_for_each_part(self):
        sizes = (4096, 65536, 1 << 20, 1 << 27)
        fields = {"check": "latency", "metric": "random_latency", "unit": "ns", "better": "lower"}
        records = []
        for size in sizes:
            for host, values in repetitions(seed=size).items():
                case = {"pu_nodes": [0], "bank": 0, "size_bytes": size}
                records += rates(*values, host=host, parameters=case, **fields)
        fleet_baseline = baseline_of(records, _without_references())
        assert sorted(reference.case.parameters["size_bytes"] for reference in fleet_baseline.learnt) == [
            sizes[0],
            sizes[2],
            sizes[-1],
        ]

    @pytest.mark.parametrize(("hosts", "text"), [(1, "on 1 host, 4 are"), (3, "on 3 hosts, 4 are")])
    def test_nothing_learnt_is_an_error_that_says_why(self, tmp_path, run_cli, hosts, text):
        of_copies(tmp_path)
        records = tmp_path / "records.jsonl"
        append(records, fleet(hosts=hosts))
        before = (tmp_path / "s.yaml").read_text()
        done = run_cli("baseline", "--system", "s", records)
        assert (done.status, text in done.err) == (2, True)
        assert (tmp_path / "s.yaml").read_text() == before

    def test_no_text_of_a_record_reaches_the_terminal(self, tmp_path, run_cli):
        of_copies(tmp_path)
        text = "\x1b]0;x\a\x9b\r\nforged"
        records = [
            replace(r, host=r.host + text, parameters={**r.parameters, "kernel": text}) for r in fleet(n7=0.8)
        ]
        few = [replace(r, metric="triad_bandwidth", host=r.host) for r in records[:3]]
        append(tmp_path / "r.jsonl", records + few)
        done = run_cli("baseline", "--system", "s", tmp_path / "r.jsonl")
        assert done.status == 0, done.err
        assert "left out: n7" in done.out
        assert "not learnt: " in done.out
        assert not {*"\x1b\a\x9b\r"} & {*done.out}
        assert not [line for line in done.out.splitlines() if line.startswith("forged")]

    def test_json_has_all(self, tmp_path, run_cli):
        of_copies(tmp_path)
        append(tmp_path / "r.jsonl", fleet(n7=0.8))
        argv = ("baseline", "--system", "s", tmp_path / "r.jsonl", "--json", "-o", tmp_path / "new.yaml")
        done = run_cli(*argv)
        document = json.loads(done.out)
        assert (document["hosts"], len(document["references"]), list(document["outliers"])) == (20, 1, ["n7"])
        assert (tmp_path / "new.yaml").is_file()


def _without_references():
    class System:
        def reference(self, *_):
            return None

    return System()


def test_a_loss_of_zero_is_refused(run_cli, tmp_path):
    done = run_cli("baseline", "--system", "s", tmp_path, "--loss", "0")
    assert (done.status, "no loss" in done.err or "not a loss" in done.err) == (2, True)
