# SPDX-License-Identifier: Apache-2.0
"""The promises of the judge of parts, on fleets of a model that it does not know.

A value follows from the nature of its host and of each part and case, the session, and the repetition.
"""

import dataclasses
import datetime
import json
import math
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from test_verdict import rates, system_of

from firsttouch.judge import history
from firsttouch.judge.findings import FAIL
from firsttouch.judge.judging import explain, judge, judged, undecided_cases
from firsttouch.judge.verdict import HostVerdict
from firsttouch.records import samples_table
from firsttouch.records.cases import Case
from firsttouch.records.schema import Record, from_frame, read, to_frame
from firsttouch.records.tables import split
from firsttouch.systems.definition import Undescribed, available

SYSTEM = Undescribed("s")
KERNELS = {"copy": 40.0, "scale": 39.0, "add": 43.0, "triad": 44.0}
#: The fault of a healthy fleet.
NOTHING_LOST: Callable[..., float] = lambda *_: 0.0  # noqa: E731


def cases_of(nodes=2):
    """Return the cases of a host: check, metric, unit, good value, parameters, and the parts shown."""
    cases = []
    for node in range(nodes):
        for bank in range(nodes):
            place = {"pu_nodes": [node], "bank": bank, "program": "firsttouch-probe"}
            far = 1.0 if node == bank else 0.6
            shown = ("memory", bank), *([] if node == bank else [("link", node, bank)])
            for kernel, rate in KERNELS.items():
                case = ("bandwidth", f"{kernel}_bandwidth", "GB/s", rate * far, {**place, "kernel": kernel})
                cases.append((*case, shown))
            case = ("latency", "random_latency", "ns", 95 / far, {**place, "size_bytes": 1 << 28})
            cases.append((*case, shown))
        place = {"pu_nodes": [node], "bank": node, "program": "firsttouch-probe"}
        for size, ns, shown in ((1 << 14, 1.5, ()), (1 << 22, 12.0, (("cache", node),))):
            case = ("latency", "random_latency", "ns", ns, {**place, "size_bytes": size})
            cases.append((*case, (("clock", node), *shown)))
    return cases


@dataclasses.dataclass
class Model:
    """A fleet; deviations are relative. *fault* returns the loss of a part by host, session, part and metric."""

    hosts: int = 8
    sessions: int = 1
    repetitions: int = 3
    fault: Callable[..., float] = NOTHING_LOST
    seed: int = 1
    nature: float = 0.006
    of_session: float = 0.003
    noise: float = 0.006
    nodes: int = 2
    digits: int | None = None

    def records(self):
        """Return a record per host, session, case and repetition."""
        return [record for host in range(self.hosts) for record in self._of_host(host)]

    def _gauss(self, deviation, *names):
        return random.Random(f"{self.seed} {names}").gauss(0, deviation)  # noqa: S311

    def _of_host(self, host):
        for number, (check, metric, unit, good, parameters, shown) in enumerate(cases_of(self.nodes)):
            sign = 1 if unit == "ns" else -1
            nature = sum(self._gauss(self.nature / 2, host, *name) for name in ((), *shown[:1], (number,)))
            for session in range(self.sessions):
                loss = sum(self.fault(host, session, part, metric) for part in shown)
                level = nature + self._gauss(self.of_session, host, session, "session") + sign * loss
                noise = random.Random(f"{self.seed} {host} {session} {number}")  # noqa: S311
                for repetition in range(self.repetitions):
                    value = good * (1 + level) * (1 + noise.gauss(0, self.noise))
                    yield Record(
                        *(check, metric, unit, "lower" if unit == "ns" else "higher"),
                        (value if self.digits is None else float(f"{value:.{self.digits}g}"),),
                        parameters=parameters,
                        host=f"n{host}",
                        system="s",
                        time=time_of(session, repetition),
                    )


def time_of(session, minute=0):
    begin = datetime.datetime(2026, 1, 5, tzinfo=datetime.UTC)
    return (begin + datetime.timedelta(days=7 * session, minutes=minute)).isoformat(timespec="milliseconds")


def verdicts(records, system=SYSTEM) -> dict[str, HostVerdict]:
    return {v.host: v for v in judge(records, system)}


def words(detections, *without):
    return {v.verdict for host, v in detections.items() if host not in without}


def failed(verdict):
    return {part.part for part in verdict.parts if part.word == "fail"}


def findings_of(records):
    return judged(samples_table.of_records(records, "s"), SYSTEM)


def memory(loss, host=0, bank=None, since=0):
    """Return the fault of a host whose memory (of one bank) loses a share of its bandwidth."""

    def fault(of_host, session, part, metric):
        is_here = of_host in (host if isinstance(host, tuple) else (host,)) and session >= since
        is_part = part[0] == "memory" and bank in {None, part[1]}
        return loss if is_here and is_part and metric.endswith("bandwidth") else 0.0

    return fault


def part_loses(loss, name, *place, host=0):
    return lambda of_host, _, part, __: loss if (of_host, part) == (host, (name, *place)) else 0.0


class TestSiblings:
    @pytest.mark.parametrize("seed", range(3))
    def test_good_hosts_pass(self, seed):
        for hosts in (4, 8, 40):
            assert words(verdicts(Model(hosts, seed=seed).records())) == {"pass"}

    @pytest.mark.parametrize("seed", range(3))
    @pytest.mark.parametrize(("hosts", "loss"), [(8, 0.1), (5, 0.15), (40, 0.05)])
    def test_a_host_with_slow_memory_fails_and_names_all_that_the_verdict_rests_on(self, hosts, loss, seed):
        of_hosts = verdicts(Model(hosts, fault=memory(loss), seed=seed).records())
        bad = of_hosts.pop("n0")
        assert (bad.verdict, words(of_hosts)) == ("fail", {"pass"})
        part = next(p for p in bad.parts if p.part == "all memory")
        assert (part.kind, part.word, part.question) == ("bandwidth", "fail", "its siblings")
        assert (part.sessions, part.repetitions, part.since) == (1, 3, "")
        assert 1 - np.exp(-part.loss) == pytest.approx(loss, abs=0.015)
        text = rf"all memory: bandwidth {100 * (1 - np.exp(-part.loss)):.1f} % worse than its siblings \(limit "
        assert re.match(text + r"\d\.\d %\), 1 session of 3 repetitions$", part.text())
        stated = next(p for p in bad.to_dict()["parts"] if p["part"] == "all memory")
        assert stated["loss"] == pytest.approx(1 - np.exp(-part.loss))
        assert stated["limit"] < stated["loss"]
        assert stated["limit"] < stated["sight"] < 0.2

    @pytest.mark.parametrize("seed", range(3))
    def test_two_alike_bad_hosts_of_eight_do_not_hide_each_other(self, seed):
        of_hosts = verdicts(Model(fault=memory(0.12, (0, 1)), seed=seed).records())
        assert {host for host, v in of_hosts.items() if v.verdict == "fail"} == {"n0", "n1"}
        assert words(of_hosts, "n0", "n1") == {"pass"}

    @pytest.mark.parametrize(
        ("fault", "parts"),
        [
            (memory(0.12), {"memory of bank 0", "memory of bank 1", "all memory"}),
            # Links end at a bank, and caches follow the clock.
            (memory(0.12, bank=0), {"memory of bank 0"}),
            (part_loses(0.12, "link", 0, 1), {"link from NUMA 0 to bank 1"}),
            (part_loses(0.12, "clock", 1), {"clock of NUMA 1"}),
            (part_loses(0.12, "cache", 0), {"caches of NUMA 0"}),
        ],
    )
    @pytest.mark.parametrize("seed", range(2))
    def test_only_the_part_that_is_bad_fails(self, fault, parts, seed):
        of_hosts = verdicts(Model(fault=fault, seed=seed).records())
        assert (failed(of_hosts["n0"]), words(of_hosts, "n0")) == (parts, {"pass"})

    @pytest.mark.parametrize(("repetitions", "word"), [(1, "undecided"), (3, "fail")])
    def test_a_metric_alone_fails_without_its_part_and_never_by_a_single_repetition(self, repetitions, word):
        def fault(host, _, part, metric):
            return 0.15 if (host, part, metric) == (0, ("memory", 0), "triad_bandwidth") else 0.0

        bad = verdicts(Model(fault=fault, repetitions=repetitions).records())["n0"]
        assert (bad.verdict, bad.parts) == (word, ())
        slow = {f.case.title: f.verdict for f in bad.findings if f.verdict != "pass"}
        assert slow == {"triad, NUMA 0 to bank 0": word, "triad, NUMA 1 to bank 0": word}

    @pytest.mark.parametrize("hosts", [1, 3, 4, 12, 70])
    def test_a_batch_that_is_bad_in_the_same_bank_does_not_define_what_is_good(self, hosts):
        fault = memory(0.2, tuple(range(hosts)), bank=1)
        findings = findings_of(Model(hosts, fault=fault).records())
        assert {findings.verdict(host).verdict for host in findings.hosts} == {"suspect"}
        assert findings.verdict("n0").bad_parts[0].part == "memory of bank 1"
        notes = f"{hosts} of {hosts} hosts are low in memory of bank 1, bandwidth"
        assert [note.partition(":")[0] for note in findings.notes()] == [notes] * (hosts > 3)

    def test_an_explanation_says_which_part_explains_the_loss_of_another(self):
        findings = findings_of(Model(fault=memory(0.2, bank=1)).records())
        words = {f.part: (f.word, f.note) for f in explain(findings, 0) if f.kind == "bandwidth"}
        assert words["memory of bank 1"] == ("fail", "")
        assert words["link from NUMA 0 to bank 1"] == ("pass", "explained by memory of bank 1")

    @pytest.mark.parametrize("metric", ["copy_bandwidth", "random_latency"])
    def test_a_value_that_no_sibling_comes_near_is_suspect(self, metric):
        far = 100.0 if metric == "copy_bandwidth" else 1e-6
        records = [
            replace(r, samples=(r.value * far,)) if (r.host, r.metric) == ("n0", metric) else r
            for r in Model().records()
        ]
        of_hosts = verdicts(records)
        assert (of_hosts.pop("n0").verdict, words(of_hosts)) == ("suspect", {"pass"})

    @pytest.mark.parametrize("digits", [2, 3])
    def test_rounded_values(self, digits):
        of_hosts = verdicts(Model(12, digits=digits, noise=0.001).records())
        assert words(of_hosts) == {"pass"}
        of_hosts = verdicts(Model(12, digits=digits, noise=0.001, fault=memory(0.12)).records())
        assert (of_hosts["n0"].verdict, words(of_hosts, "n0")) == ("fail", {"pass"})

    def test_half_of_the_hosts_of_another_generation_are_a_line_and_nobody_is_suspect(self):
        def fault(host, _, part, metric):
            return 0.12 if host % 2 and part[0] == "memory" and metric.endswith("bandwidth") else 0.0

        findings = findings_of(Model(12, fault=fault).records())
        assert {findings.verdict(host).verdict for host in findings.hosts} == {"pass"}
        (note,) = findings.notes()
        assert note.startswith("two groups, ")
        assert "(n[0,2,4,6,8,10])" in note
        assert re.search(r"1\d\.\d % apart; nothing shows which group is right", note)
        assert findings.divided[0].apart == pytest.approx(0.12, abs=0.01)

        def and_a_bad_one(host, session, part, metric):
            return fault(host, session, part, metric) + memory(0.1, 3)(host, session, part, metric)

        of_hosts = verdicts(Model(30, fault=and_a_bad_one).records())
        assert (of_hosts["n3"].verdict, words(of_hosts, "n3")) == ("fail", {"pass"})

    @pytest.mark.parametrize("bad", [1, 6])
    def test_a_bad_host_of_a_faster_generation_fails(self, bad):
        """Its bad part is as fast as the slow generation's, so that part alone does not tell."""

        def fault(host, session, part, metric):
            is_slow = host >= 6 and part[0] == "memory" and metric.endswith("bandwidth")
            return 0.15 * is_slow + memory(0.15, bad, 0)(host, session, part, metric)

        of_hosts = verdicts(Model(12, sessions=3, fault=fault).records())
        assert (of_hosts[f"n{bad}"].verdict, words(of_hosts, f"n{bad}")) == ("fail", {"pass"})
        assert failed(of_hosts[f"n{bad}"]) == {"memory of bank 0"}


class TestNewestSession:
    """A loss in the newest session alone is the host's present state: older good sessions do not hide it."""

    @pytest.mark.parametrize("loss", [0.12, 0.3])
    @pytest.mark.parametrize("sessions", [2, 3, 4, 5])
    def test_it_is_suspect_or_fails_whatever_the_number_of_good_sessions_before(self, sessions, loss):
        of_hosts = verdicts(Model(sessions=sessions, fault=memory(loss, bank=1, since=sessions - 1)).records())
        assert of_hosts["n0"].verdict in {"suspect", "fail"}
        assert any("bank 1" in part.part and part.loss > 0.8 * loss for part in of_hosts["n0"].parts)
        assert words(of_hosts, "n0") == {"pass"}

    def test_metrics_that_the_host_lacks_do_not_defend_it(self):
        kept = {"copy_bandwidth", "scale_bandwidth"}
        records = [r for r in Model(sessions=9, fault=memory(0.4, bank=1, since=8)).records() if r.metric in kept]
        lacking = [r for r in records if (r.host, r.metric) != ("n0", "scale_bandwidth")]
        assert "memory of bank 1" in failed(verdicts(records)["n0"])
        assert "memory of bank 1" in failed(verdicts(lacking)["n0"])

    @pytest.mark.parametrize("sessions", [2, 4, 6])
    def test_a_reference_fails_it(self, tmp_path, sessions):
        entry = {"check": "bandwidth", "metric": "copy_bandwidth", "value": "40 GB/s", "source": "order"}
        place = {"parameters": {"pu_nodes": [1], "bank": 1}, "tolerance": {"lower": "-10 %"}}
        system = system_of(tmp_path, entry | place)
        bad = Model(1, sessions=sessions, fault=memory(0.3, bank=1, since=sessions - 1)).records()
        assert verdicts(bad, system)["n0"].verdict == "fail"
        assert verdicts(Model(1, sessions=sessions).records(), system)["n0"].verdict != "fail"


class TestBlind:
    HELP = "and a pass needs 20 %: a reference, more hosts or more sessions would help"

    @pytest.mark.parametrize(("nature", "noise"), [(0.15, 0.006), (0.006, 0.1)])
    def test_too_little_sight_is_undecided_and_says_what_would_help(self, nature, noise):
        findings = findings_of(Model(4, nature=nature, noise=noise).records())
        for verdict in map(findings.verdict, findings.hosts):
            assert verdict.verdict == "undecided"
            assert any(re.match(r"undecided: only losses above \d\d % of ", line) for line in verdict.evidence)
            assert self.HELP in "\n".join(verdict.evidence)

    def test_a_sight_that_the_system_states_is_named(self):
        findings = judged(samples_table.of_records(Model(4).records(), "s"), replace(SYSTEM, sight=0.01))
        assert "and a pass needs 1 %: " in findings.verdict("n0").line()

    def test_the_run_time_of_a_program_needs_sight_too(self):
        rng = random.Random(1)  # noqa: S311
        times = [
            Record(
                "app",
                "run_time",
                "s",
                "lower",
                (rng.gauss(100, 25),),
                host=f"n{host}",
                system="s",
                time=time_of(0, n),
            )
            for host in range(6)
            for n in range(2)
        ]
        assert words(verdicts([*Model(6).records(), *times])) == {"undecided"}

    def test_a_part_that_sees_too_little_is_named_though_all_others_see_enough(self):
        records = Model().records()
        rng = random.Random(1)  # noqa: S311
        unlike = {f"n{host}": 1 + rng.gauss(0, 0.12) for host in range(8)}
        is_bank = [r.metric.endswith("bandwidth") and r.parameters["bank"] == 1 for r in records]
        records = [
            replace(r, samples=(r.value * unlike[r.host],)) if bank and r.parameters["pu_nodes"] == [1] else r
            for r, bank in zip(records, is_bank, strict=True)
        ]
        of_hosts = verdicts(records)
        assert "pass" not in words(of_hosts)
        assert {part for v in of_hosts.values() for part in v.blind} >= {"memory of bank 1, bandwidth"}
        assert not any("bank 0" in part for v in of_hosts.values() for part in v.blind)

    def test_a_loss_beyond_the_limit_that_does_not_fail_says_why(self):
        verdict = verdicts(Model(8, repetitions=1, fault=memory(0.4, bank=0)).records())["n0"]
        beyond = [part for part in verdict.parts if part.loss > part.limit]
        assert beyond
        assert {(part.word, part.note) for part in beyond} <= {
            (word, "in too few repetitions to fail: measure it again") for word in ("suspect", "undecided")
        }

    @pytest.mark.parametrize("seed", [5, 11])  # another host is somewhat better, too
    def test_a_host_that_is_better_makes_no_other_one_undecided(self, seed):
        records = Model(5, fault=memory(-0.15), nature=0.01, noise=0.01, seed=seed).records()
        assert words(verdicts(records)) == {"pass"}

    def test_two_groups_of_few_hosts_do_not_pass(self):
        of_hosts = verdicts(Model(5, noise=0.03, fault=memory(0.09, (0, 1))).records())
        assert of_hosts["n0"].verdict != "pass" != of_hosts["n1"].verdict

    def test_a_check_of_a_site_may_measure_some_cases_on_no_numa_node(self):
        places = ({"pu_nodes": [0]}, {"pu_nodes": [1]}, {})
        records = [
            Record(
                "dgemm", "gflops", "GFLOP/s", "higher", (20.0 + 0.01 * host,), place, host=f"n{host}", system="s"
            )
            for host in range(5)
            for place in places
        ]
        assert words(verdicts(records, Undescribed("s"))) == {"pass"}

    def test_a_few_hosts_do_not_pass_unless_references_see_every_part(self, tmp_path):
        records = Model(2, repetitions=1).records()
        limits = {"source": "order", "tolerance": {"lower": "-20 %"}}
        entries = [
            {
                "check": "bandwidth",
                "metric": "copy_bandwidth",
                "value": f"{value} GB/s",
                "parameters": case,
                **limits,
            }
            for value, pu, bank in ((40, 0, 0), (40, 1, 1), (24, 0, 1), (24, 1, 0))
            for case in [{"pu_nodes": [pu], "bank": bank}]
        ]
        for verdict in verdicts(records, system_of(tmp_path, *entries)).values():
            assert verdict.verdict == "undecided"
            assert verdict.visible is None  # nothing was compared with siblings or an own level
            assert {"caches of NUMA 0, latency", "memory of bank 0, latency"} <= verdict.blind.keys()
            assert not any("bandwidth" in part for part in verdict.blind)

    def test_a_rate_of_0_is_named(self):
        records = [replace(r, samples=(0.0,)) if r.host == "n0" else r for r in Model(5).records()]
        assert "it measured 0" in verdicts(records)["n0"].line()

    def test_a_campaign_ends_when_all_hosts_are_decided_or_repetitions_cannot_help(self):
        most, counts = Model(6, fault=memory(0.1), noise=0.03, repetitions=12).records(), 1
        number = {time_of(0, minute): minute for minute in range(12)}
        while True:
            findings = findings_of([r for r in most if number[r.time] < counts])
            again = [key for host in findings.hosts for key in undecided_cases(findings, host)]
            if not again:
                break
            assert counts < 12, "the campaign does not end"
            counts += 1
        assert counts > 1
        assert findings.verdict("n0").verdict == "fail"
        assert undecided_cases(findings, "n0", most=1) == {}
        keys = {Case.from_record(r).key for r in most}
        assert set(undecided_cases(findings_of([r for r in most if number[r.time] < 1]), "n0")) <= keys


#: Records that decide at once, whatever else is known: the fields of a record that fails its host.
EXACT = {
    "wrong answers": ("correctness", "wrong_words", "1", "lower", (3.0,), {"work": "stream", "bank": 1}),
    "a slow core": ("cores", "slow_cores", "1", "lower", (1.0,), {"program": "firsttouch-probe", "pu": 3}),
    "lost data": ("health", "uncorrected_errors", "1", "lower", (1.0,), {"module": "DIMM 1"}),
}


class TestExact:
    @pytest.mark.parametrize("name", EXACT)
    @pytest.mark.parametrize("model", [Model(1, repetitions=1), Model(4, noise=0.1), Model(8)])
    def test_one_is_enough_whatever_else_is_unknown(self, name, model):
        records = [*model.records(), Record(*EXACT[name], host="n0", system="s", time=time_of(0))]
        bad = verdicts(records)["n0"]
        assert bad.verdict == "fail"
        assert EXACT[name][1] in {f.case.metric for f in bad.findings if f.verdict == "fail"}

    def test_a_wrong_count_fails_though_the_host_is_busy(self):
        pus = {"check": "topology", "metric": "pus", "unit": "1", "better": "neither", "parameters": {}}
        records = [r for i in range(6) for r in rates(64.0 - 8 * (i == 3), host=f"n{i}", **pus)]
        of_hosts = verdicts([*records, *rates(2.0, host="n3", **{**pus, "metric": "busy_pus"})])
        # Facts alone never make a host pass.
        assert (of_hosts.pop("n3").verdict, words(of_hosts)) == ("fail", {"undecided"})

    def test_a_wrong_count_is_shown_and_not_the_older_ones(self):
        pus = {"check": "topology", "metric": "pus", "unit": "1", "better": "neither", "parameters": {}}
        counts = [(week, f"n{i}", 32.0 + (i == 3 and week == 2)) for week in range(3) for i in range(6)]
        records = [replace(r, time=time_of(week)) for week, host, n in counts for r in rates(n, host=host, **pus)]
        assert "pus: 33, 3.1 % above the fleet (32)" in verdicts(records)["n3"].line()

    def test_a_host_whose_answers_were_never_checked_is_suspect(self):
        fields = (*EXACT["wrong answers"][:4], (0.0,), EXACT["wrong answers"][5])
        checked = [Record(*fields, host=f"n{i}", system="s", time=time_of(0)) for i in range(7)]
        of_hosts = verdicts([*Model().records(), *checked])
        assert (of_hosts.pop("n7").verdict, words(of_hosts)) == ("suspect", {"pass"})


class TestBusy:
    @staticmethod
    def busy(host="n0", day=0):
        fields = ("topology", "busy_pus", "1", "neither", (2.0,))
        return Record(*fields, host=host, system="s", time=time_of(day))

    def test_what_is_slow_while_others_use_the_host_is_invalid(self):
        of_hosts = verdicts([*Model(fault=memory(0.3)).records(), self.busy()])
        bad = of_hosts.pop("n0")
        assert (bad.verdict, bad.causes, words(of_hosts)) == ("invalid", (), {"pass"})
        assert "disturbed: other processes used 2 PUs; measure it again" in bad.line()

    def test_good_values_of_a_busy_host_pass(self):
        assert words(verdicts([*Model().records(), self.busy()])) == {"pass"}

    @pytest.mark.parametrize("hosts", [5, 8])
    def test_busy_hosts_do_not_show_what_is_good(self, hosts):
        busy = [self.busy(f"n{host}") for host in range(hosts)]
        findings = findings_of([*Model(fault=memory(0.3, tuple(range(5)))).records(), *busy])
        of_hosts = {host: findings.verdict(host).verdict for host in findings.hosts}
        assert {of_hosts[f"n{host}"] for host in range(5)} == {"invalid"}
        assert {of_hosts[f"n{host}"] for host in range(5, 8)} == {"undecided" if hosts == 5 else "invalid"}

    def test_an_explanation_fails_no_part_of_a_busy_host(self):
        findings = findings_of([*Model(fault=memory(0.3)).records(), self.busy()])
        assert {part.word for part in explain(findings, 0)} == {"pass", "invalid"}

    def test_busy_pus_of_another_session_excuse_nothing(self):
        assert verdicts([*Model(fault=memory(0.3)).records(), self.busy(day=-1)])["n0"].verdict == "fail"


def weeks(sessions, fault=NOTHING_LOST, **options):
    """Return a fleet whose hosts differ, measured once a week."""
    defaults = {"hosts": 12, "repetitions": 2, "nature": 0.012}
    return Model(sessions=sessions, fault=fault, **(defaults | options)).records()


class TestOwnLevel:
    @pytest.mark.parametrize("seed", range(3))
    @pytest.mark.parametrize(("loss", "first"), [(0.046, "suspect"), (0.06, "fail")])
    def test_the_first_bad_session_is_suspect_or_clearly_bad_and_the_second_fails(self, loss, first, seed):
        for bad, word in ((0, "pass"), (1, first), (2, "fail"), (4, "fail")):
            of_hosts = verdicts(weeks(8 + bad, memory(loss, since=8), seed=seed, nature=0.03))
            assert of_hosts["n0"].verdict == word
            assert words(of_hosts, "n0") <= {"pass", "undecided"}
            parts = {part.part: part for part in of_hosts["n0"].parts}
            if bad:
                part = parts["all memory"]
                assert (part.question, part.since, part.sessions) == ("its own level", "2026-03-02", bad)
                assert "since 2026-03-02" in part.text()
                assert ("fails if the next one shows this" in part.text()) == (word == "suspect")

    def test_a_host_that_fails_by_its_own_level_was_judged(self):
        (bad,) = verdicts(weeks(12, memory(0.2, since=8), hosts=1)).values()
        assert (bad.verdict, bad.is_judged) == ("fail", True)
        assert not any("nothing was judged" in line for line in bad.evidence)

    @pytest.mark.parametrize(("repetitions", "word"), [(1, "suspect"), (2, "fail")])
    def test_a_large_loss_fails_in_its_first_session_but_not_by_a_single_repetition(self, repetitions, word):
        of_hosts = verdicts(weeks(9, memory(0.3, since=8), repetitions=repetitions))
        bad = of_hosts.pop("n0")
        assert (bad.verdict, words(of_hosts)) == (word, {"pass"})
        if word == "fail":
            assert all(part.loss > part.limit for part in bad.parts if part.word == "fail")
            assert "metrics pass" not in bad.line()

    @pytest.mark.parametrize(
        ("bad", "loss", "bank"), [(4, 0.25, None), (8, 0.25, None), (4, 0.25, 1), (5, 0.12, None)]
    )
    def test_hosts_that_are_bad_in_their_newest_session_do_not_pass_however_many_they_are(self, bad, loss, bank):
        findings = findings_of(weeks(8, memory(loss, tuple(range(bad)), bank, since=7), hosts=20))
        is_bad = {f"n{host}" for host in range(bad)}
        assert is_bad == {host for host in findings.hosts if findings.verdict(host).verdict != "pass"}

    @pytest.mark.parametrize("bad", [3, 5, 8])
    def test_some_hosts_that_lost_much_together_do_not_pass(self, bad):
        findings = findings_of(weeks(10, memory(0.12, tuple(range(bad)), since=7), hosts=20))
        of_hosts = {host: findings.verdict(host) for host in findings.hosts}
        assert {of_hosts.pop(f"n{host}").verdict for host in range(bad)} <= {"undecided", "fail"}
        assert words(of_hosts) == {"pass"}
        assert findings.notes()[0].startswith(f"changed together: {bad} of 20 hosts lost")

    @pytest.mark.parametrize("seed", range(3))
    def test_a_drift_that_all_hosts_share_is_nobodys_loss(self, seed):
        def fault(host, session, part, metric):
            return 0.01 * session + memory(0.15, since=4)(host, session, part, metric)

        findings = findings_of(weeks(9, fault, hosts=20, seed=seed, nature=0.005))
        of_hosts = {host: findings.verdict(host) for host in findings.hosts}
        assert (of_hosts.pop("n0").verdict, words(of_hosts)) == ("fail", {"pass"})
        assert findings.notes()[0].startswith("changed together: 20 of 20 hosts lost")

    def test_sessions_of_a_few_hours_are_judged_though_no_time_lies_between_them(self):
        begin = datetime.datetime(2026, 1, 5, tzinfo=datetime.UTC)
        records = [
            replace(r, time=(begin + (datetime.datetime.fromisoformat(r.time) - begin) / 150).isoformat())
            for r in weeks(8, memory(0.12, since=5), hosts=8, nature=0.006)
        ]
        of_hosts = verdicts(records)
        assert (of_hosts.pop("n0").verdict, words(of_hosts)) == ("fail", {"pass"})

    def test_an_eighth_of_the_hosts_that_lose_about_as_much_in_some_weeks_fail(self):
        def fault(host, session, part, _):
            return 0.05 * (host < 4 and session >= 9 + host and part == ("clock", 1))

        of_hosts = verdicts(weeks(18, fault, hosts=32, nature=0.02))
        assert {of_hosts.pop(f"n{host}").verdict for host in range(4)} == {"fail"}
        assert words(of_hosts) == {"pass"}

    @pytest.mark.parametrize("seed", range(3))
    def test_hosts_of_an_aisle_that_drift_together_do_not_fail(self, seed):
        def fault(host, session, *_):
            return 0.03 * math.sin(2 * math.pi * session / 12) * (1 if host % 2 else -1)

        assert words(verdicts(weeks(12, fault, hosts=20, seed=seed, nature=0.005))) <= {
            "pass",
            "undecided",
            "suspect",
        }

    def test_two_hosts_that_lose_much_in_the_same_session_may_be_the_first_of_an_update(self):
        of_hosts = verdicts(weeks(9, memory(0.12, (0, 1), since=8)))
        assert {of_hosts.pop(name).verdict for name in ("n0", "n1")} == {"suspect"}
        assert words(of_hosts) == {"pass"}

    @pytest.mark.parametrize("bad", [[1, 0], [1, 1, 0, 0]])
    def test_half_of_the_repetitions_of_a_session_fail_nobody(self, bad):
        records = weeks(10, repetitions=len(bad), nature=0.006)
        late = {time_of(9, minute) for minute, is_bad in enumerate(bad) if is_bad}
        records = [
            replace(r, samples=(r.value * 0.75,)) if r.host == "n0" and r.time in late and r.unit == "GB/s" else r
            for r in records
        ]
        of_hosts = verdicts(records)
        assert (of_hosts.pop("n0").verdict, words(of_hosts)) == ("suspect", {"pass"})

    def test_one_disturbed_session_is_no_change(self):
        def fault(host, session, part, metric):
            return memory(0.2)(host, session, part, metric) if session == 8 else 0.0

        assert words(verdicts(weeks(11, fault))) == {"pass"}

    def test_hosts_that_are_repaired_together_pass(self):
        def fault(host, session, part, metric):
            return memory(0.12, (0, 1, 2, 3))(host, session, part, metric) if session < 6 else 0.0

        findings = findings_of(weeks(9, fault))
        assert ({findings.verdict(host).verdict for host in findings.hosts}, findings.notes()) == ({"pass"}, [])

    @pytest.mark.parametrize(
        ("hosts", "sessions", "bad"),
        [(12, 16, {4, 8, 11, 14}), (8, 10, {3, 6, 8}), (8, 12, {1, 3, 5, 7, 9}), (8, 17, {8, 9, 11, 12})],
    )
    def test_an_intermittent_host_is_suspect(self, hosts, sessions, bad):
        def fault(host, session, part, metric):
            return memory(0.15)(host, session, part, metric) if session in bad else 0.0

        of_hosts = verdicts(weeks(sessions, fault, hosts=hosts))
        intermittent = of_hosts.pop("n0")
        assert (intermittent.verdict, words(of_hosts)) == ("suspect", {"pass"})
        assert f"intermittent: bad in {len(bad)} of {sessions} sessions" in intermittent.line()

    @pytest.mark.parametrize(
        ("begin", "end", "word"), [(10, 14, "fail"), (12, 14, "fail"), (13, 14, "suspect"), (4, 8, "pass")]
    )
    def test_a_single_metric_is_judged_by_its_present_sessions(self, begin, end, word):
        def fault(host, session, part, metric):
            is_there = host == 0 and begin <= session < end and metric == "triad_bandwidth"
            return 0.25 * (is_there and part == ("memory", 1))

        of_hosts = verdicts(weeks(14, fault, seed=4))
        assert (of_hosts.pop("n0").verdict, words(of_hosts)) == (word, {"pass"})

    @pytest.mark.parametrize(("sessions", "begin", "word"), [(2, 1, "suspect"), (3, 2, "suspect"), (3, 1, "fail")])
    @pytest.mark.parametrize("metric", ["triad_bandwidth", ""])
    def test_a_change_among_few_sessions_is_not_noise(self, sessions, begin, word, metric):
        def fault(host, session, part, of):
            is_there = host == 0 and session >= begin and of.endswith(metric or "bandwidth")
            return 0.25 * (is_there and part == ("memory", 1))

        of_hosts = verdicts(Model(12, sessions, fault=fault, seed=4).records())
        assert (of_hosts.pop("n0").verdict, words(of_hosts)) == (word, {"pass"})

    def test_a_metric_that_is_new_has_not_changed(self):
        def fault(host, session, part, metric):
            return 0.25 * (host < 3 and part == ("memory", 1) and metric == "triad_bandwidth")

        late = [r for r in weeks(14, fault, seed=4) if r.metric != "triad_bandwidth" or r.time > time_of(11)]
        of_hosts = verdicts(late)
        assert {of_hosts.pop(f"n{host}").verdict for host in range(3)} == {"fail"}
        assert words(of_hosts) == {"pass"}

    def test_a_metric_that_is_measured_no_more_is_missing(self):
        late = [r for r in weeks(9) if r.host != "n0" or r.metric != "triad_bandwidth" or r.time < time_of(2)]
        verdict = verdicts(late)["n0"]
        assert verdict.verdict == "suspect"
        assert any("last measured on 2026-01-12, other hosts still are" in text for text in verdict.missing)


def update(loss, begin, waves=1, more=(-1, 0.0)):
    """Return the fault of an update of all hosts, in waves of a week; a host of it may lose *more*."""

    def fault(host, session, part, metric):
        is_here = session >= begin + host % waves and part[0] == "memory" and metric.endswith("bandwidth")
        return (loss + (more[1] if host == more[0] else 0.0)) * is_here

    return fault


class TestUpdates:
    @pytest.mark.parametrize("waves", [1, 3])
    @pytest.mark.parametrize("sessions", [8, 9, 12])
    def test_hosts_that_change_together_are_one_line_and_fail_nobody(self, waves, sessions):
        findings = findings_of(weeks(sessions, update(0.05, 7, waves), seed=1, nature=0.006))
        not_passing = [v for host in findings.hosts if (v := findings.verdict(host)).verdict != "pass"]
        # The first waves of an update may as well be hosts with a fault.
        assert {v.verdict for v in not_passing} <= ({"undecided"} if waves == 3 and sessions < 12 else set())
        assert all("with other hosts at the time: an update, or a fault" in v.line() for v in not_passing)
        if sessions == 12:
            (note,) = findings.notes()
            period = f"2026-02-16 to 2026-{'03-09' if waves > 1 else '02-23'}"
            assert note == (
                f"changed together: 12 of 12 hosts lost 5.0 %, {period} "
                "(n[0-11]; all memory, bandwidth and 5 more; no recorded setting changed)"
            )
            (change,) = history.changes(findings)
            assert (change.when, change.part) == (period, "all memory, bandwidth")

    @pytest.mark.parametrize(("hosts", "loss"), [(4, 0.25), (8, 0.06), (8, 0.4), (20, 0.25)])
    def test_a_loss_of_all_hosts_in_the_newest_session_is_a_line(self, hosts, loss):
        findings = findings_of(weeks(8, update(loss, 7), hosts=hosts, nature=0.006))
        assert {findings.verdict(host).verdict for host in findings.hosts} == {"pass"}
        (note,) = findings.notes()
        assert note.startswith(f"changed together: {hosts} of {hosts} hosts lost")

    @pytest.mark.parametrize("loss", [0.06, -0.08, 0.25])
    @pytest.mark.parametrize("since", [6, 7])
    def test_a_host_that_lost_more_than_all_hosts_did_fails(self, loss, since):
        def fault(host, session, part, metric):
            of_n5 = memory(0.15, 5, since=since)(host, session, part, metric)
            return of_n5 + update(loss, 7)(host, session, part, metric)

        of_hosts = verdicts(weeks(8, fault, hosts=12, repetitions=3))
        assert (of_hosts.pop("n5").verdict, words(of_hosts)) == ("fail", {"pass"})

    def test_hosts_that_may_share_a_fault_state_its_size(self):
        findings = findings_of(weeks(12, lambda *of: update(0.08, 7)(*of) * (of[0] < 4), nature=0.006))
        for verdict in (findings.verdict(f"n{host}") for host in range(4)):
            assert verdict.verdict == "undecided"
            assert re.search(
                r"bandwidth [78]\.\d % worse than its own level, .* with other hosts at the time", verdict.line()
            )

    def test_the_line_names_the_hosts_that_changed(self):
        findings = findings_of(weeks(10, lambda *of: update(0.08, 6)(*of) * (of[0] > 2), hosts=20))
        assert findings.notes()[0].startswith("changed together: 17 of 20 hosts lost")
        assert "n[3-19];" in findings.notes()[0]

    @pytest.mark.parametrize("seed", range(3))
    @pytest.mark.parametrize("second", [0.04, -0.05])
    def test_two_updates_fail_nobody_and_are_two_lines(self, second, seed):
        def fault(*of):
            return update(0.05, 4)(*of) + update(second, 7)(*of)

        findings = findings_of(weeks(10, fault, hosts=20, seed=seed, repetitions=3))
        assert {findings.verdict(host).verdict for host in findings.hosts} == {"pass"}
        assert [note.split(" of ")[0] for note in findings.notes()] == ["changed together: 20"] * 2

    @pytest.mark.parametrize("seed", range(3))
    def test_a_host_that_came_after_an_update_passes(self, seed):
        records = weeks(10, update(0.06, 6), hosts=20, seed=seed, repetitions=3)
        came = [r for r in records if r.host != "n5" or r.time >= time_of(7)]
        assert words(verdicts(came)) == {"pass"}

    @pytest.mark.parametrize(("loss", "bank"), [(0.12, 0), (0.5, None)])
    def test_faults_of_the_same_week_are_no_update(self, loss, bank):
        """No update takes the rate of one bank, or half of all, from some hosts and nothing from the others."""
        of_hosts = verdicts(weeks(12, memory(loss, (0, 1, 2), bank, since=9), nature=0.006))
        assert {of_hosts.pop(f"n{host}").verdict for host in range(3)} == {"fail"}
        assert words(of_hosts) == {"pass"}

    @pytest.mark.parametrize("seed", range(4))
    def test_an_update_by_unequal_amounts_is_not_a_drift_and_fails_nobody(self, seed):
        shares = np.random.default_rng(seed).uniform(0.02, 0.08, 8)

        def fault(host, session, *_):
            return -float(shares[host]) * (session < 8 + host // 5)

        assert "fail" not in words(verdicts(weeks(17, fault, hosts=8, seed=seed, nature=0.006)))

    @pytest.mark.parametrize("seed", range(4))
    def test_an_update_of_three_hosts_that_some_of_their_parts_do_not_show_fails_none_of_them(self, seed):
        def fault(host, session, part, _):
            return 0.05 * (host < 3 and session >= 6 and part[0] == "memory")

        findings = findings_of(Model(10, 8, seed=seed, noise=0.012, fault=fault).records())
        assert "fail" not in {findings.verdict(host).verdict for host in findings.hosts}

    @pytest.mark.parametrize("seed", [0, 2])
    def test_sessions_that_all_hosts_spent_in_other_conditions_are_no_change_of_a_few(self, seed):
        def fault(host, session, part, _):
            return 0.02 * random.Random(f"{seed} {session} {part[0]}").gauss(0, 1) ** 3  # noqa: S311

        findings = findings_of(weeks(10, fault, hosts=8, seed=seed, nature=0.006))
        assert all(re.match("changed together: 8 of 8 hosts", note) for note in findings.notes())

    @pytest.mark.parametrize("share", [0.6, 1.0])
    @pytest.mark.parametrize("waves", [1, 3])
    def test_noise_that_hides_an_update_in_some_parts_of_some_hosts_fails_nobody(self, waves, share):
        def fault(host, session, part, metric):
            noise = random.Random(f"{host} {session} {part} {metric}")  # noqa: S311
            wide = random.Random(f"{part} {metric}").choice([0.003, 0.01, 0.03, 0.06])  # noqa: S311
            return noise.gauss(0, wide) + 0.04 * (host < 40 * share and session >= 6 + host % waves)

        findings = findings_of(weeks(12, fault, hosts=40, repetitions=1, nature=0.006))
        assert FAIL not in [findings.word(host) for host in findings.hosts]
        (note,) = findings.notes()
        assert re.match(f"changed together: {round(40 * share)} of 40 hosts lost", note)

    @pytest.mark.parametrize("waves", [1, 3])
    def test_a_host_that_loses_more_than_the_update_fails(self, waves):
        of_hosts = verdicts(weeks(12, update(0.05, 7, waves, more=(4, 0.08)), nature=0.006))
        assert (of_hosts.pop("n4").verdict, words(of_hosts)) == ("fail", {"pass"})

    @pytest.mark.parametrize("seed", range(3))
    def test_a_host_does_not_lose_an_update_again(self, seed):
        def fault(*of):
            return update(0.05, 5, 3)(*of) + memory(0.08, 4, since=10)(*of)

        of_hosts = verdicts(weeks(11, fault, nature=0.006, seed=seed, repetitions=3))
        assert of_hosts.pop("n4").verdict in {"suspect", "fail"}
        assert words(of_hosts) == {"pass"}

    @pytest.mark.parametrize("repaired", [4, 5])
    def test_a_host_that_was_disturbed_or_repaired_has_the_update_too(self, repaired):
        of_all, odd = update(0.05, 7), memory(0.25)

        def fault(host, session, *of):
            return of_all(host, session, *of) + (odd(host, session, *of) if 3 <= session < repaired else 0.0)

        detections = findings_of(weeks(14, fault, hosts=8))
        assert {detections.verdict(host).verdict for host in detections.hosts} == {"pass"}
        assert len(detections.updates) == 1
        assert "8 of 8 hosts" in detections.updates[0]

    @pytest.mark.parametrize("seed", range(2))
    def test_disturbed_weeks_of_many_hosts_are_no_update(self, seed):
        def fault(host, session, part, metric):
            is_here = host < 12 and session == (5 * host + seed) % 9 + 2
            return 0.25 * (is_here and part[0] == "memory" and metric.endswith("bandwidth"))

        detections = findings_of(weeks(14, fault, hosts=24, seed=seed))
        assert not detections.updates
        assert "fail" not in {detections.verdict(host).verdict for host in detections.hosts}

    def test_an_update_that_makes_all_faster_is_a_line(self):
        findings = findings_of(weeks(10, update(-0.05, 6)))
        assert {findings.verdict(host).verdict for host in findings.hosts} == {"pass"}
        assert re.match(r"changed together: 12 of 12 hosts gained [45]\.\d %", findings.notes()[0])


BOARD = {"board": "a", "interfaces": "1 2"}


def configured(parts, model="x"):
    """Return a configuration of n0 a week with these *parts* ({}: they cannot be read)."""
    shown = {"settings": {"cpu.model": model}, "provenance": {}}
    what = ("configuration", "settings", "1", "neither", (1.0,))
    return [
        Record(*what, parameters={**shown, "parts": of_week}, host="n0", system="s", time=time_of(week))
        for week, of_week in enumerate(parts)
    ]


class TestReplaced:
    @staticmethod
    def slower(host, session, part, metric):
        """Return the fault of a host that was faster than its siblings, and is a little slower now."""
        return memory(0.03 if session >= 7 else -0.02)(host, session, part, metric)

    @pytest.mark.parametrize(
        ("since", "word"),
        [
            (BOARD, "fail"),
            ({"board": "b", "interfaces": "1 2"}, "pass"),
            ({"board": "a", "interfaces": "3 4"}, "fail"),  # other cards on the same board
            ({"interfaces": "2 3"}, "fail"),
            ({"interfaces": "3 4"}, "pass"),
            ({**BOARD, "processors": "p"}, "fail"),  # they could not be read before
            ({}, "fail"),
        ],
    )
    def test_another_board_begins_anew(self, since, word):
        records = weeks(10, self.slower, nature=0.02)
        of_hosts = verdicts([*records, *configured([*[BOARD] * 7, *[since] * 3])])
        assert (of_hosts["n0"].verdict, words(of_hosts, "n0")) == (word, {"pass"})
        sentence = "since a time between 2026-02-16 00:00 and 2026-02-23 00:00 UTC: older sessions do not count"
        assert (sentence in of_hosts["n0"].line()) == (word == "pass")

    def test_a_host_that_changes_in_all_parts_at_once_begins_anew(self):
        losses = {("memory", 0): 0.03, ("memory", 1): 0.03, ("cache", 0): -0.04, ("cache", 1): -0.04}
        losses |= {("clock", 0): -0.04, ("clock", 1): 0.03, ("link", 0, 1): -0.07, ("link", 1, 0): -0.07}

        def fault(host, session, part, _):
            return losses[part] if (host, session > 7) == (0, True) else 0.0

        def only_memory(host, session, part, metric):
            return fault(host, session, part, metric) if part[0] == "memory" else 0.0

        assert verdicts(weeks(12, fault, nature=0.02))["n0"].verdict == "pass"
        assert verdicts(weeks(12, only_memory, nature=0.02))["n0"].verdict in {"suspect", "fail"}

    def test_a_person_may_state_it(self, tmp_path, run_cli):
        records = weeks(10, self.slower, nature=0.02)
        fields: dict[str, Any] = {"metric": "replaced", "parameters": {"reason": "new board"}}
        stated = replace(configured([{}])[0], **fields, time="2026-02-17T12:00:00")
        for parts in ([], configured([BOARD] * 10)):
            verdict = verdicts([*records, *parts, stated])["n0"]
            assert verdict.verdict == "pass"
            assert "another board or other processors since a time between 2026-02-1" in verdict.line()
        file = tmp_path / "replaced.jsonl"
        arguments = ("fleet", "replaced", "n0", "--records", file, "--reason", "new board", "--system")
        assert run_cli(*arguments, "no-such-system").status == 2
        assert run_cli("fleet", "replaced", "n[1-3]", "--records", file, "--system", "local").status == 2
        done = run_cli(*arguments, available()["amd-rome"])
        assert (done.status, "n0 does not fit `hostnames` of the system amd-rome" in done.err) == (0, True)
        (written,) = read(file)
        assert (written.host, written.system, written.metric) == ("n0", "amd-rome", "replaced")
        assert written.parameters == stated.parameters


class TestReferences:
    """Values of one host by references of 5 % tolerance; what single metrics show is in test_verdict.py."""

    @pytest.fixture
    def system(self, tmp_path):
        entries = [
            {
                **{"check": "bandwidth", "metric": f"{kernel}_bandwidth", "value": f"{rate} GB/s"},
                "source": "fleet of 8 hosts",
                "parameters": {"kernel": kernel, "relation": "local"},
                "tolerance": {"lower": "-5 %", "upper": "20 %"},
                "error": "2 %",
            }
            for kernel, rate in KERNELS.items()
        ]
        return system_of(tmp_path, *entries)

    @staticmethod
    def host(share, repetitions=3, **more):
        """Return copies of one host's records at *share* of the references, by kernel."""
        rng = random.Random(1)  # noqa: S311
        places = {"pu_nodes": [0], "bank": 0}
        return [
            record
            for kernel, rate in KERNELS.items()
            for record in rates(
                *(rate * share.get(kernel, 1.0) * (1 + rng.gauss(0, 0.004)) for _ in range(repetitions)),
                metric=f"{kernel}_bandwidth",
                parameters={**places, "kernel": kernel},
                **more,
            )
        ]

    @pytest.mark.parametrize(
        ("share", "repetitions", "word"),
        [
            ({}, 1, "pass"),
            ({"triad": 0.8}, 1, "undecided"),
            ({"triad": 0.8}, 3, "fail"),
            ({"triad": 0.9}, 3, "fail"),
            ({"triad": 1.3}, 3, "suspect"),
            (dict.fromkeys(KERNELS, 0.97), 3, "pass"),
            (dict.fromkeys(KERNELS, 0.8), 2, "fail"),
        ],
    )
    def test_words(self, system, share, repetitions, word):
        assert verdicts(self.host(share, repetitions), system)["n1"].verdict == word

    def test_metrics_of_a_part_that_are_each_a_little_below_fail_together(self, system):
        bad = verdicts(self.host(dict.fromkeys(KERNELS, 0.88), 2), system)["n1"]
        assert bad.verdict == "fail"
        (part,) = bad.parts
        assert (part.part, part.kind, part.question) == ("memory of bank 0", "bandwidth", "what was promised")
        assert {f.why.partition(" below ")[2].partition(" (")[0] for f in bad.findings} == {"the reference of s"}
        assert 1 - np.exp(-part.loss) == pytest.approx(0.12, abs=0.01)
        alone = verdicts(self.host({"triad": 0.93}, 2), system)["n1"]
        assert (alone.verdict, alone.parts) == ("undecided", ())


class TestTable:
    def test_a_record_read_twice_is_one_repetition_and_another_of_its_time_is_not(self):
        records = Model(3).records()
        once, twice = samples_table.of_records(records), samples_table.of_records([*records, *reversed(records)])
        assert np.array_equal(once.value, twice.value)
        assert np.array_equal(once.counts, twice.counts)
        other = replace(records[0], parameters={**records[0].parameters, "seconds": -1.0})
        assert len(samples_table.of_records([*records, other]).value) == len(records) + 1

    @settings(max_examples=6, deadline=None)
    @given(st.integers(0, 10**6), st.sampled_from([20, 50]))
    def test_tables_may_come_in_any_parts(self, seed, size):
        records = Model(3, seed=seed, sessions=2).records()
        random.Random(seed).shuffle(records)  # noqa: S311
        at_once = samples_table.of_records(records)
        frames = [to_frame(records[i : i + size]) for i in range(0, len(records), size)]
        in_parts = samples_table.of_tables(map(split, frames))
        assert (at_once.hosts, at_once.cases) == (in_parts.hosts, in_parts.cases)
        for name in ("value", "session_times", "ordinal", "valid", "judged", "case", "host", "counts"):
            assert np.array_equal(getattr(at_once, name), getattr(in_parts, name)), name
        # Each group is sorted by time, whatever the order of the records.
        for begin, count in zip(at_once.begins, at_once.counts, strict=True):
            assert (np.diff(at_once.ordinal[begin : begin + count].astype(int)) >= 0).all()
        lines = [[json.dumps(r.to_dict(), sort_keys=True) for r in of] for of in (from_frame(frames[0]), records)]
        assert lines[0] == lines[1][:size]
