# SPDX-License-Identifier: Apache-2.0
"""The report of many hosts, from stored records to the page, and the comparison of two campaigns.

Also the order of hosts on the page, the words for changes, and the section Configuration.
"""

import json
import os
import re
from urllib.parse import unquote

import numpy as np
import polars as pl
import pytest
from msgspec.structs import replace
from test_report_recomputed import page_of
from test_verdict import of_copies

from factories.fleet_records import records_by_host
from factories.processes import run_captured
from firsttouch import cli
from firsttouch.campaign import campaigns
from firsttouch.campaign.journal import Entry
from firsttouch.host.host_lists import natural
from firsttouch.judge.comparison import Comparison, Host, MetricChange, compare
from firsttouch.judge.judging import judged
from firsttouch.records import samples_table, schema, store
from firsttouch.records.cases import Case
from firsttouch.records.schema import Record
from firsttouch.report.document import Table
from firsttouch.report.fleet import comparison, figures, fleet_pages
from firsttouch.report.fleet.figures import Ranks
from firsttouch.report.text import SIGNS, anchors
from firsttouch.systems.definition import Undescribed


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Two stores of the same 60 hosts, before and after their memory became 6 % slower."""
    folder = tmp_path_factory.mktemp("stores")
    for name, day, slower in (("before", "2026-01-01", 0.0), ("after", "2026-02-01", 0.06)):
        for host_records in records_by_host(day=day, slower=slower).values():
            store.append(folder / name, host_records)
    return folder


@pytest.fixture(scope="module")
def reported(stores, tmp_path_factory):
    """The report of the first store."""
    out = tmp_path_factory.mktemp("reported") / "out"
    done = run_captured("report", stores / "before", "-o", out)
    assert done.status == 0, done.err
    return out, done.out


@pytest.fixture(scope="module")
def compared(stores, tmp_path_factory):
    """The comparison of both stores."""
    out = tmp_path_factory.mktemp("compared") / "out"
    done = run_captured("report", "--compare", stores / "before", stores / "after", "-o", out)
    assert done.status == 1, done.err
    return out


def all_records(by_host):
    return [r for host_records in by_host.values() for r in host_records]


def scaled(records, factor, check=""):
    """Return *records*, those of a *check* (all by default) with values that are *factor* times as large."""
    return [replace(r, samples=(r.value * factor,)) if check in {"", r.check} else r for r in records]


def judged_fleet(by_host):
    return judged(samples_table.of_records(all_records(by_host)), Undescribed("s"))


def compared_records(*sides):
    """Return the comparison of the records before and after."""
    return compare(*map(samples_table.of_records, sides))


def summary_of(*argv, out, **environment):
    """Return the summary of a report that is written into the folder *out*."""
    done = run_captured("report", *argv, "-o", out, **environment)
    assert done.status == 0, done.err
    return json.loads((out / "summary.json").read_text())


def heat_map(judgement):
    """Return the table of the map of hosts and metrics."""
    (table,) = [block for block in figures.heat(Ranks(judgement)) if isinstance(block, Table)]
    return table


class TestPage:
    def test_sixty_hosts_and_twelve_metrics_from_a_store_to_the_page(self, reported):
        out, printed = reported
        assert "60 hosts: 1 fail, 1 invalid, 1 suspect, 57 pass; 1 host with missing results." in printed
        summary = json.loads((out / "summary.json").read_text())
        assert (summary["document"], summary["kind"]) == ("firsttouch report", "fleet")
        (system,) = summary["systems"]
        first = {h["host"]: h["verdict"] for h in system["hosts"][:4]}
        assert list(first.items())[:3] == [("n007", "fail"), ("n011", "invalid"), ("n005", "suspect")]
        assert sum(h["verdict"] == "pass" for h in system["hosts"]) == 57
        assert "memory of bank 1: bandwidth" in system["hosts"][0]["evidence"][0]

    def test_bad_hosts_come_before_the_map_open_and_with_their_causes(self, reported):
        page = page_of(reported[0])
        (bad,) = [e for e in page.iter("div") if e.get("class") == "hosts"]
        assert [host.find("summary/b").text for host in bad] == ["n007", "n011", "n005"]
        assert {host.get("open") for host in bad} == {"open"}
        assert "Possible cause: memory channel missing" in "".join(bad[0].itertext())
        order = [e for e in page.iter() if e is bad or e.get("class", "").startswith("heat")]
        assert order[0] is bad

    def test_a_metric_has_one_name_on_the_page_the_ticket_and_the_terminal(self, reported):
        out, printed = reported
        page = page_of(out)
        (key,) = [e for e in page.iter("ol") if e.get("class") == "key"]
        titles = ["".join(e.itertext()) for e in key]
        assert len({*titles}) == len(titles) == 12
        assert titles[:5:4] == ["random latency, NUMA 0 to bank 0, 64 MiB", "copy, NUMA 0 to bank 0"]
        # Every line of evidence begins with one of these names.
        ticket = (out / "summary.md").read_text()
        for text in (printed, ticket, "".join(page.itertext())):
            assert "total bandwidth, NUMA 2 to bank 2, 4 threads: 9 % of" in " ".join(text.split())
        headings = {"".join(h.itertext()) for h in page.iter("h4")}
        assert headings <= {*titles}

    def test_each_host_has_an_address_that_depends_on_its_name_only(self, reported):
        page = page_of(reported[0])
        places = {e.get("id"): e for e in page.iter() if e.get("id")}
        (heat,) = [t for t in page.iter("table") if t.get("class", "").startswith("heat")]
        for row in heat.find("tbody"):
            link = row.find("th/a")
            assert link.get("href") == f"#host-s.{link.text}"
            assert link.get("href")[1:] in places
        # A link to a host that does not pass opens its evidence.
        (folded,) = [e for e in page.iter("details") if places["host-s.n007"] in [*e]]
        assert "n007" in "".join(folded.find("summary").itertext())

    def test_names_that_look_alike_in_an_address_have_different_ones(self):
        assert anchors("host", ["a b", "a-b", "a.b"], "s") == {
            "a b": "host-s.a-b",
            "a-b": "host-s.a-b-2",
            "a.b": "host-s.a.b",
        }

    def test_a_name_that_looks_like_markup_is_shown_as_it_is(self, tmp_path):
        evil = '<script>alert("x")</script>|&'
        for host, host_records in records_by_host(hosts=9).items():
            name = evil if host == "n007" else host
            store.append(tmp_path / "st", [replace(r, host=name) for r in host_records])
        done = run_captured("report", tmp_path / "st", "-o", tmp_path / "out", "--details", "1")
        assert done.status == 0, done.err
        page = page_of(tmp_path / "out")
        assert len(list(page.iter("script"))) == 1
        (link,) = [a for a in page.iter("a") if "".join(a.itertext()) == f"All results of {evil}"]
        assert len(list((tmp_path / "out" / "hosts").iterdir())) == 1
        of_host = tmp_path / "out" / unquote(link.get("href"))
        back = [
            a.get("href") for a in page_of(of_host.parent).iter("a") if "".join(a.itertext()) == "The whole fleet"
        ]
        assert [(of_host.parent / target).resolve() for target in back] == [tmp_path / "out" / "index.html"]
        assert "\\<script\\>" in (tmp_path / "out" / "summary.md").read_text()

    @staticmethod
    def _bad_in(changes):
        by_host = records_by_host()
        del by_host["n005"], by_host["n007"], by_host["n011"]
        for host, (check, factor) in changes.items():
            by_host[host] = scaled(by_host[host], factor, check)
        return judged_fleet(by_host)

    def test_hosts_are_sorted_by_severity_not_by_the_number_of_bad_metrics(self):
        slow = {"n020": ("bandwidth", 0.88), "n021": ("contention", 0.5), "n022": ("latency", 1.2)}
        assert self._bad_in(slow).by_severity[:4] == ["n021", "n022", "n020", "n000"]
        # A missing NUMA node is the worst finding.
        by_host = records_by_host()
        for host, factor in (("n020", 0.5), ("n030", 0.88)):
            by_host[host] = scaled(by_host[host], factor)
        by_host["n030"] = [r for r in by_host["n030"] if r.parameters["bank"] != 3]
        assert judged_fleet(by_host).by_severity[:3] == ["n030", "n020", "n007"]

    def test_the_map_shows_the_reason_of_each_failing_host(self, monkeypatch):
        monkeypatch.setattr(figures, "MOST_METRICS", 3)
        changes = {f"n{number:03d}": ("bandwidth", 0.8) for number in range(20, 29)}
        judgement = self._bad_in({**changes, "n040": ("latency", 1.2), "n041": ("contention", 0.9)})
        shown = heat_map(judgement)
        metrics = {cell.tip for cell in shown.head[1:4]}
        assert {name.split(",")[0] for name in metrics} == {"copy", "random latency", "total bandwidth"}
        for host, *cells in shown.cells:
            if host.tone == "word-fail":
                assert SIGNS["fail"] in {cell.sign for cell in cells}, host.text

    def test_a_change_that_has_no_better_direction_is_never_shown_as_good(self, monkeypatch):
        monkeypatch.setattr(figures, "MOST_METRICS", 1)
        by_host = {h: [replace(r, better="neither") for r in rs] for h, rs in records_by_host().items()}
        by_host["n020"] = scaled(by_host["n020"], 0.8)
        shown = heat_map(judged_fleet(by_host))
        (cells,) = [cells for host, *cells in shown.cells if host.text == "n020"]
        assert cells[-1].tone.startswith("b")


class TestHistory:
    @pytest.mark.parametrize("dated", [0, 1, 2])
    def test_a_time_that_was_not_recorded_is_no_day_of_1970(self, tmp_path, dated):
        by_host = records_by_host(hosts=8)
        records = [r if int(r.time[17:19]) < dated else replace(r, time="") for r in all_records(by_host)]
        fleet = judged(samples_table.of_records(records), Undescribed("s"))
        fleet_pages.build([fleet], tmp_path)
        texts = [(tmp_path / name).read_text() for name in ("index.html", "summary.json", "summary.prom")]
        assert not any("1970-01-01" in text for text in texts)
        hosts = json.loads(texts[1])["systems"][0]["hosts"]
        assert any(host["measured"] is None for host in hosts) == (dated == 0)


class TestCommand:
    def test_a_system_judges_and_its_verdicts_are_shown(self, tmp_path):
        of_copies(tmp_path)
        records = [replace(r, samples=(8.0 + i / 100,)) for i, r in enumerate(records_by_host(hosts=1)["n000"])]
        schema.append(tmp_path / "records.jsonl", records)
        env = {"FIRSTTOUCH_SYSTEMS": str(tmp_path)}
        argv = (tmp_path / "records.jsonl", "--system")
        (verdict,) = summary_of(*argv, "s", out=tmp_path / "out", **env)["verdicts"]
        assert (verdict["host"], verdict["verdict"]) == ("n000", "fail")
        assert run_captured("report", *argv, "nosuch", "-o", tmp_path / "out", **env).status == 2

    def test_hosts_of_another_system_are_judged_by_their_own_fleet(self, tmp_path):
        of_copies(tmp_path)
        env = {"FIRSTTOUCH_SYSTEMS": str(tmp_path)}
        for host, host_records in records_by_host(hosts=9).items():
            store.append(tmp_path / "st", [replace(r, system="t", host=f"t-{host}") for r in host_records])
        argv = ("report", tmp_path / "st", "-o", tmp_path / "out")
        done = run_captured(*argv, "--system", "s", **env)
        assert (done.status, "no record of system s" in done.err) == (2, True)
        done = run_captured(*argv, "--max-age", "1d", **env)
        assert (done.status, "are older than --max-age" in done.err) == (2, True)
        for host, host_records in records_by_host(hosts=6).items():
            store.append(tmp_path / "st", [replace(r, samples=(10.0,)) for r in host_records if host != "n005"])
        first, second = summary_of(tmp_path / "st", "--system", "s", out=tmp_path / "out", **env)["systems"]
        assert (first["system"], len(first["hosts"])) == ("s", 5)
        assert (second["system"], second["hosts"][0]["host"]) == ("t", "t-n007")

    def test_a_report_read_again_with_its_records_counts_nothing_twice(self, stores, tmp_path):
        by_host = records_by_host(hosts=6)
        schema.append(tmp_path / "in" / "records.jsonl", all_records(by_host))
        store.append(tmp_path / "in", all_records(by_host))
        summary_of(tmp_path / "in", out=tmp_path / "out")
        findings = pl.read_parquet(tmp_path / "out" / "findings.parquet")
        assert findings["passes"].unique().to_list() == [6]

    def test_a_fleets_report_is_replaced_by_another(self, tmp_path):
        out, few = tmp_path / "out", tmp_path / "few.jsonl"
        schema.append(few, all_records(records_by_host(hosts=9, repetitions=2)))
        cli.main(["report", str(few), "-o", str(out), "--details", "1"])
        assert (out / "hosts").is_dir()
        cli.main(["report", str(few), "-o", str(out)])
        assert not (out / "hosts").exists()

    def test_hosts_that_a_campaign_lost_are_listed_first(self, tmp_path):
        fields = {"dataset": "", "aligners": (), "repetitions": 1, "only": ["bandwidth-1", "latency-0"]}
        planned = campaigns.plan("validate", tmp_path / "c", system="amd-opteron", **fields)
        campaign = campaigns.create(replace(planned, system="s", created="2026-01-01T00:00:00.000+00:00"))
        for host, host_records in records_by_host(hosts=6).items():
            journal = campaign.host(host)
            journal.open()
            begin, end = journal.add(host_records)
            journal.write(Entry("bandwidth-1", "measured", "2026-01-01T00:01:00", host, begin=begin, end=end))
            ending, reason = ("failed", "the probe was killed") if host == "n003" else ("measured", "")
            journal.write(Entry("latency-0", ending, "2026-01-01T00:02:00", host, reason=reason))
        (first, *_) = summary_of(campaign.folder, out=tmp_path / "out")["missing"]
        assert first["what"].startswith("n003")
        assert "the probe was killed" in first["reason"]

    def test_the_system_named_by_the_records_judges_without_the_option(self, tmp_path):
        pus = {"check": "topology", "metric": "pus", "unit": "1", "better": "neither", "samples": (63.0,)}
        slow = [
            replace(host_records[0], **pus, system="amd-opteron", parameters={})
            for host_records in records_by_host(hosts=6, repetitions=1).values()
        ]
        schema.append(tmp_path / "r.jsonl", slow)
        (system,) = summary_of(tmp_path / "r.jsonl", out=tmp_path / "out")["systems"]
        page = (tmp_path / "out" / "index.html").read_text()
        assert "has no reference" not in page
        assert all("64" in host["evidence"][0] for host in system["hosts"])

    def test_checks_that_failed_in_reframe_are_listed(self, tmp_path):
        cases = [
            {"display_name": "latency %pu_node=0", "result": "pass", "outputdir": str(tmp_path / "output")},
            {"display_name": "counters", "result": "skip", "fail_reason": None},
            {"display_name": "placement", "result": "fail", "fail_reason": "sanity error: exit status 7"},
        ]
        report = tmp_path / "run-report.json"
        report.write_text(json.dumps({"session_info": {}, "runs": [{"testcases": cases}]}))
        report.with_suffix(".log").write_text("[     SKIP ] (2/3) counters /12345678 @s:p+e [not here]\n")
        schema.append(tmp_path / "output" / "records.jsonl", records_by_host(hosts=1)["n000"])
        summary = summary_of(report, out=tmp_path / "out")
        assert {(p["name"], p["kind"], p["reason"]) for p in summary["problems"]} == {
            ("counters", "skipped", "not here"),
            ("placement", "failed", "exit status 7"),
        }
        assert summary["hosts"][0]["host"] == "n000"

    def test_the_newest_run_report_of_a_folder_counts_whatever_its_name(self, tmp_path):
        folder = tmp_path / "reframe"
        for number, (written, failed) in enumerate([(30.0, ["placement", "counters"]), (10.0, ["topology"])]):
            file = folder / "reports" / f"run-{number}.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            cases = [{"display_name": f"{n} %x=1", "result": "fail", "fail_reason": "why"} for n in failed]
            file.write_text(json.dumps({"session_info": {}, "runs": [{"testcases": cases}]}))
            os.utime(file, (written, written))
        (folder / "reports" / "other.json").write_text("[]")
        schema.append(folder / "output" / "records.jsonl", records_by_host(hosts=1)["n000"])
        done = run_captured("report", folder, "-o", tmp_path / "out")
        assert done.status == 0, done.err
        assert "Checks: 2 failed" in done.out
        problems = json.loads((tmp_path / "out" / "summary.json").read_text())["problems"]
        names = [(p["name"], p["check"]) for p in problems]
        assert names == [("placement %x=1", "placement"), ("counters %x=1", "counters")]


class TestCompare:
    def test_slower_memory_is_found_and_nothing_else(self, stores, compared, tmp_path):
        summary = json.loads((compared / "summary.json").read_text())
        words = {c["metric"]: c["verdict"] for c in summary["changes"]}
        assert {w for m, w in words.items() if m.startswith("latency")} == {"worse"}
        assert {w for m, w in words.items() if not m.startswith("latency")} == {"unchanged"}
        for change in summary["changes"][:4]:
            assert change["low"] < 0.06 < change["high"]
        # In the opposite order the change is an improvement.
        counts = summary_of("--compare", stores / "after", stores / "before", out=tmp_path / "out")["counts"]
        assert (counts["better"], counts["worse"]) == (4, 0)

    @pytest.mark.parametrize(("hosts", "unlike"), [(3, []), (4, ["n003"]), (7, ["n003"])])
    def test_of_few_hosts_only_one_that_changed_far_more_is_named(self, hosts, unlike):
        before, after = records_by_host(hosts=hosts), records_by_host(hosts=hosts, day="2026-02-01")
        slower = "n003" if hosts > 3 else "n001"
        after[slower] = scaled(after[slower], 0.7)
        compared = compared_records(all_records(before), all_records(after))
        assert [host.name for host in compared.changed] == unlike

    @staticmethod
    def of_equal_hosts(hosts, repetitions, slower, noise, metrics=12):
        """Return the comparison of hosts that differ in nothing but the *noise* of repetitions."""
        rng = np.random.default_rng(7)
        sides = [
            [
                Record(
                    *("latency", "random_latency", "ns", "lower"),
                    (level * (1 + noise * rng.standard_normal()),),
                    parameters={"size_bytes": 1 << 26, "pu_nodes": [bank], "bank": bank},
                    host=f"n{host:02}",
                    system="s",
                    time=f"{day}T00:{repetition // 60:02}:{repetition % 60:02}.000+00:00",
                )
                for host in range(hosts)
                for bank in range(metrics)
                for repetition in range(repetitions)
            ]
            for day, level in (("2026-01-01", 100.0), ("2026-02-01", 100.0 * (1 + slower)))
        ]
        return compared_records(*sides)

    @pytest.mark.parametrize("hosts", [1, 2, 3, 8])
    def test_six_repetitions_of_a_host_or_more_decide(self, hosts):
        changes = self.of_equal_hosts(hosts, 6, 0.045, 0.005).changes
        assert {(c.word, c.needs) for c in changes} == {("worse", "")}
        for change in changes:
            assert change.low < 0.045 < change.high
        equal = self.of_equal_hosts(hosts, 12, 0.0, 0.005).changes
        assert {c.word for c in equal} == {"unchanged"}

    def test_a_single_repetition_of_a_host_proves_nothing(self):
        assert {c.word for c in self.of_equal_hosts(1, 1, 0.1, 0.001).changes} == {"undecided"}

    def test_a_host_that_was_busy_is_named_and_not_compared(self):
        before, after = records_by_host(hosts=5), records_by_host(hosts=5, day="2026-02-01")
        after["n003"] = scaled(after["n003"], 0.7)
        busy = replace(after["n003"][0], check="topology", metric="busy_pus", unit="1", better="neither")
        busy = replace(busy, samples=(2.0,), parameters={}, time="2026-02-01T00:00:00.000+00:00")
        compared = compared_records(all_records(before), [busy, *all_records(after)])
        assert (compared.busy, compared.changed) == (["n003"], [])
        assert {c.hosts for c in compared.changes} == {4}
        alone = compared_records(before["n003"], [busy, *after["n003"]])
        assert {c.needs for c in alone.changes} == {"an idle host"}

    def test_a_measured_value_that_became_zero_is_a_change(self):
        """Bank 0 of all hosts and bank 1 of one host change to 0, and back."""
        before, later = (all_records(records_by_host(hosts=5, day=f"2026-0{n}-01")) for n in (1, 2))
        banks_of = {f"n{n:03}": {0, 1} if n == 3 else {0} for n in range(5)}
        after = [replace(r, samples=(0.0,)) if r.parameters["bank"] in banks_of[r.host] else r for r in later]
        for sides, word, size in (([before, after], "worse", -1.0), ([after, before], "better", 1.0)):
            compared = compared_records(*([r for r in side if r.check == "bandwidth"] for side in sides))
            of_bank = {c.case.parameters["bank"]: c for c in compared.changes}
            assert [(of_bank[bank].word, of_bank[bank].hosts) for bank in (0, 1)] == [(word, 5), ("unchanged", 4)]
            assert (of_bank[0].size, of_bank[1].unlike) == (size, [("n003", size)])
            assert [(host.name, host.lost, host.new) for host in compared.changed] == [("n003", (), ())]
            assert compared.cases_of_one == ([], [])

    def test_a_change_that_noise_hides_needs_more_repetitions(self):
        undecided = [c for c in self.of_equal_hosts(20, 1, 0.0, 0.04).changes if c.word == "undecided"]
        assert {c.needs for c in undecided} == {"more repetitions"}
        assert {c.word for c in self.of_equal_hosts(20, 16, 0.0, 0.04).changes} == {"unchanged"}

    def test_hosts_with_nothing_in_common_are_no_comparison(self, tmp_path, run_cli):
        files = [str(tmp_path / f"{number}.jsonl") for number in range(2)]
        for number, of_host in enumerate(records_by_host(hosts=2).values()):
            schema.append(tmp_path / f"{number}.jsonl", [replace(r, system="amd-opteron") for r in of_host])
        status, _, err = run_cli("report", "--compare", *files, "-o", str(tmp_path / "out"))
        assert (status, (tmp_path / "out").exists()) == (2, False)
        assert files[0] in err
        status, _, err = run_cli("validate", "--system", "amd-opteron", files[0], "--explain", "")
        assert (status, "--explain" in err) == (2, True)

    def test_hosts_that_broke_are_counted_and_named_though_no_metric_changed(self, tmp_path, capsys):
        before, after = records_by_host(), records_by_host(day="2026-02-01")
        after |= {host: scaled(after[host], factor) for host, factor in (("n020", 0.5), ("n021", 0.8))}
        # One host lost a NUMA node, another one a single metric; a third one was repaired.
        after["n030"] = [r for r in after["n030"] if r.parameters["bank"] != 3]
        after["n031"] = [r for r in after["n031"] if (r.check, r.parameters["bank"]) != ("latency", 0)]
        before["n032"] = [r for r in before["n032"] if r.parameters["bank"] != 1]
        del after["n033"]
        for name, by_host in (("before", before), ("after", after)):
            store.append(tmp_path / name, all_records(by_host))
        paths = [str(tmp_path / name) for name in ("before", "after")]
        assert cli.main(["report", "--compare", *paths, "-o", str(tmp_path / "out")]) == 1
        document = json.loads((tmp_path / "out" / "summary.json").read_text())
        line = "12 unchanged. Only in one: 1 host. 2 hosts changed unlike the others, 2 hosts lost metrics"
        assert (
            f"{line} that others have, 1 host has new metrics; the worst is n030: 3 metrics gone"
            in document["line"]
        )
        hosts = {h["host"]: h for h in document["hosts"]}
        assert list(hosts) == ["n030", "n031", "n020", "n021", "n032"]
        assert [len(hosts[h]["lost"]) for h in hosts] == [3, 1, 0, 0, 0]
        assert len(hosts["n020"]["changes"]) == 12
        assert hosts["n020"]["changes"][0]["change"] == pytest.approx(-0.5, abs=0.02)
        assert len(hosts["n032"]["new"]) == 3
        ticket = (tmp_path / "out" / "summary.md").read_text()
        page = "".join(page_of(tmp_path / "out").itertext())
        for text in (capsys.readouterr().out, ticket, page):
            assert re.search(r"n033.*n030.*n031.*n020.*n021.*n032", text, re.DOTALL)
            assert re.search(r"-(49|50)\.\d %", text)
        assert page.index("n033") < page.index("In short") < page.index("Hosts by their worst change")

    @staticmethod
    def of_wrong_answers(counts_before, counts_after):
        """Return the comparison of hosts with these numbers of wrong answers."""
        name = ("correctness", "wrong_answers", "1", "lower")
        fields = {"parameters": {"work": "crc", "bank": 0}, "system": "s"}
        sides = [
            [
                Record(*name, (float(count),), host=f"n{host:02}", time=f"{day}T00:00:00.000+00:00", **fields)
                for host, count in enumerate(counts)
            ]
            for day, counts in (("2026-01-01", counts_before), ("2026-02-01", counts_after))
        ]
        return compared_records(*sides)

    def test_a_change_from_zero_is_compared_and_named(self, tmp_path):
        compared = self.of_wrong_answers([0] * 20, [7] * 20)
        (change,) = compared.changes
        assert (change.word, change.before, change.after, change.size) == ("worse", 0.0, 7.0, 1.0)
        assert (change.hosts, change.low, change.high) == (20, 1.0, 1.0)
        assert compared.cases_of_one == ([], [])
        comparison.build(compared, tmp_path, names=("before", "after"))
        document = json.loads((tmp_path / "summary.json").read_text())
        assert document["line"].startswith("1 metric of 20 hosts in both: 1 worse. First: ")
        assert document["missing"] == []
        (repaired,) = self.of_wrong_answers([7] * 20, [0] * 20).changes
        assert (repaired.word, repaired.size) == ("better", -1.0)

    def test_the_first_wrong_answers_of_some_hosts_are_a_loss_though_the_others_have_none(self):
        compared = self.of_wrong_answers([0] * 20, [0] * 17 + [7, 1, 2])
        (change,) = compared.changes
        assert (change.word, change.before, change.after) == ("worse", 0.0, 2.0)
        assert sorted(change.unlike) == [("n17", 1.0), ("n18", 1.0), ("n19", 1.0)]
        assert [host.name for host in compared.changed] == ["n17", "n18", "n19"]

    @pytest.mark.parametrize(
        ("check", "metric", "other"),
        [
            ("correctness", "wrong_answers", {"program": "q"}),
            ("cores", "slow_cores", {"program": "p", "measured_pus": "0-3"}),
        ],
    )
    def test_events_that_name_their_pu_are_compared_with_none(self, check, metric, other):
        """The record of a fault has parameters (its PU) that records without a fault do not have."""

        def table(*parameters, count):
            records = [
                Record(check, metric, "1", "lower", (count * ("pu" in p),), p, host=host, system="s")
                for host, p in zip(("n1", "n2"), parameters, strict=True)
            ]
            return samples_table.of_records(records)

        good = {"program": "p"}
        healthy, faulty = table(good, good, count=0.0), table(good, {**good, "pu": 7}, count=3.0)
        worse, better = compare(healthy, faulty), compare(faulty, healthy)
        for compared, *expected in ((worse, "worse", 0.0, 3.0), (better, "better", 3.0, 0.0)):
            change = compared.changes[0]
            assert [change.word, change.before, change.after] == expected
            assert [(host.name, host.lost, host.new) for host in compared.changed] == [("n2", (), ())]
        # Another program or other PUs do not show that the fault is gone.
        changes = compare(faulty, table(good, other, count=0.0)).changes
        assert {change.word for change in changes} == {"unchanged"}


def case(metric="copy_bandwidth", better="higher", **parameters):
    return Case("s", "bandwidth", metric, parameters, "GB/s", better)


def change(word, size, low, high, *, better="higher", **parameters):
    return MetricChange(case(better=better, **parameters), 20, 10.0, 10 * (1 + size), size, low, high, (), word)


def test_hosts_are_sorted_as_people_count():
    hosts = ["", "7", "n1", "n1-2", "n9", "n10", "n10a", "x"]
    assert sorted({*hosts}, key=natural) == hosts


class TestChanges:
    def test_a_metric_is_told_by_its_worst_word_and_only_cases_of_that_word_give_the_size(self):
        some = [
            change("unchanged", 0.001, -0.002, 0.002, bank=0),
            change("worse", -0.10, -0.12, -0.08, bank=1),
            change("worse", -0.20, -0.22, -0.18, bank=2),
        ]
        table = comparison.short_table(some)
        assert table.texts == [("copy", "worse 2, unchanged 1 of 3 cases", "-20.0 % to -10.0 %", "")]
        assert table.cells[0][1].tone == "nowrap word-worse"

    @pytest.mark.parametrize(
        ("better", "size", "says"),
        [
            ("higher", 0.0991, "+9.9 % (better)"),
            ("lower", 0.0451, "+4.5 % (worse)"),
            ("lower", -0.0451, "-4.5 % (better)"),
            ("neither", 0.05, "+5.0 %"),
        ],
    )
    def test_a_hosts_change_says_whether_it_is_for_the_better(self, better, size, says):
        host = Host("n1", [(case(better=better), size)], (), ())
        ((name, _, worst, *_),) = comparison.host_table([host]).texts
        assert (name, worst) == ("n1", f"copy {says}")
        result = Comparison((), 9, [host], (), ((), ()), ((), ()))
        example = "such as" if says.endswith("(better)") else "the worst is"
        assert f"; {example} n1: copy {says}." in comparison._unlike(result)

    def test_an_undecided_change_says_what_would_decide_it(self):
        undecided = replace(change("undecided", 0.05, -0.1, 0.2), needs="12 hosts", floor=6.604)
        (row,) = comparison.change_table([undecided]).texts
        assert (row[1], row[5]) == ("undecided: would have seen 660.4 %; needs 12 hosts", "-10.0 % to +20.0 %")


SLOW = ("n001", "n002", "n007", "n012")
MODULES = {f"memory.modules.A{slot}": "32 GiB DDR4-3200" for slot in range(2)}


def settings_of(host):
    """Four slow hosts have an old kernel; one has <b> as firmware, another lacks a module."""
    settings = {"kernel.release": "5.15", "firmware.version": "2.4", "cpu.model": "Xeon", **MODULES}
    if host in SLOW:
        settings["kernel.release"] = "5.14"
    if host == "n003":
        settings["firmware.version"] = "<b>"
    if host == "n004":
        del settings["memory.modules.A1"]
    return settings


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """Twenty hosts of a system in one file."""
    file = tmp_path_factory.mktemp("drift") / "records.jsonl"
    listed = []
    for host, measured in records_by_host(hosts=20, repetitions=3).items():
        listed += scaled(measured, 0.9 if host in SLOW else 1.0, "bandwidth")
        if host != "n005":
            parameters = {"settings": settings_of(host), "provenance": {"memory.modules": "dmidecode"}}
            when = "2026-01-01T00:00:00+00:00"
            fields = ("configuration", "settings", "1", "neither", (1,), parameters)
            listed.append(Record(*fields, host=host, system="s", time=when))
    schema.append(file, listed)
    return file


def test_the_report_names_what_deviates(records, tmp_path, run_cli):
    status, out, _ = run_cli("report", records, "-o", tmp_path / "out")
    assert status == 0
    page = (tmp_path / "out" / "index.html").read_text().replace("\xa0", " ")
    rows = page[page.index("Deviations from the golden configuration: 3 groups") :]
    assert "kernel.release 5.14 (most: 5.15)" in rows
    assert "4 hosts, n[001-002,007,012]" in rows
    assert "firmware.version &lt;b&gt; (most: 2.4)" in rows
    assert "memory module A1: absent (most: 32 GiB DDR4-3200)" in rows
    ticket = (tmp_path / "out" / "summary.md").read_text().replace("\\", "")
    assert "kernel.release 5.14 (most: 5.15): 4 hosts, n[001-002,007,012]" in ticket
    assert "kernel.release 5.14" in out
    (system,) = json.loads((tmp_path / "out" / "summary.json").read_text())["systems"]
    assert system["configuration"]["hosts"] == 19
    assert system["configuration"]["golden"]["firmware.version"] == "2.4"
    assert list(SLOW) in [deviation["hosts"] for deviation in system["configuration"]["deviations"]]
