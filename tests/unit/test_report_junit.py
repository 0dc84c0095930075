# SPDX-License-Identifier: Apache-2.0
"""junit.xml as the readers of continuous integration systems read it."""

from junitparser import Error, Failure, JUnitXml, Skipped
from msgspec.structs import replace
from test_verdict import LIMITS, rates, system_of

from factories.host_records import Machine, built_report, invalid
from firsttouch.judge.judging import judge
from firsttouch.report import model, pages

#: What Jenkins' and GitLab's readers want of each element (the schema of Jenkins' xUnit plugin).
NEEDED = {
    "testsuites": {"name", "tests", "failures", "errors"},
    "testsuite": {"name", "tests", "failures", "errors", "skipped", "time", "timestamp", "hostname"},
    "testcase": {"name", "classname", "time"},
    "failure": {"message", "type"},
    "error": {"message", "type"},
    "skipped": {"message"},
    "properties": set(),
    "property": {"name", "value"},
}
CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"properties", "testcase"},
    "properties": {"property"},
    "testcase": {"failure", "error", "skipped"},
}


def read(folder):
    """Return the suites by name, after a check of their form and counts."""
    suites = JUnitXml.fromfile(str(folder / "junit.xml"))
    for element in suites._elem.iter():
        assert set(element.attrib) >= NEEDED[element.tag]
        assert {child.tag for child in element} <= CHILDREN.get(element.tag, set())
    for suite in suites:
        stated = (suite.tests, suite.failures, suite.errors, suite.skipped)
        suite.update_statistics()
        assert (suite.tests, suite.failures, suite.errors, suite.skipped) == stated
    assert suites.tests == sum(s.tests for s in suites)
    return {suite.name: suite for suite in suites}


def results(suite):
    return {test.name: [(type(r), r.message) for r in test.result] for test in suite}


def test_a_verdict_is_a_test_case(tmp_path):
    entry = {"check": "bandwidth", "metric": "copy_bandwidth", "value": "10 GB/s", "source": "an order"}
    system = system_of(tmp_path, {**entry, "tolerance": LIMITS["higher"]})
    lost = [replace(r, status="invalid", reason="pages <elsewhere> & more") for r in rates(10.0, host="lost")]
    records = [*rates(10.0, host="good"), *rates(1.0, 1.0, host="slow"), *lost]
    records = [replace(r, parameters={**r.parameters, "kernel": "copy"}) for r in records]
    verdicts = judge(records, system, missing={"good": [], "gone": ["latency-0: its host died"]})
    out = tmp_path / "report"
    out.mkdir()
    pages.build(records, out, verdicts=verdicts)
    suites = read(out)
    assert sorted(suites) == ["gone", "good", "lost", "slow"]
    assert list(results(suites["good"]).values()) == [[]]
    ((kind, message),) = next(iter(results(suites["slow"]).values()))
    assert kind is Failure
    assert "90.0 % below" in message
    assert results(suites["gone"])["missing: latency-0: its host died"][0][0] is Skipped
    ((kind, message),) = next(iter(results(suites["lost"]).values()))
    assert kind is Error
    assert "pages <elsewhere> & more" in message
    properties = {(p.name, p.value) for p in suites["slow"].properties()}
    assert ("verdict", "fail") in properties


def test_without_a_verdict_checks_are_test_cases(tmp_path):
    problems = [
        model.Problem("counters", "skipped", "perf_event_paranoid is 3", "counters", "n1"),
        model.Problem("latency", "failed", "it died\x1b[0m", "latency", "n1"),
        model.Problem("figures", "skipped", "not all hosts are drawn", check=""),
    ]
    machine = Machine(1, 2)
    built_report(tmp_path, [*machine.bandwidth(), invalid(machine.contention()[0])], problems=problems)
    suites = read(tmp_path)
    cases = results(suites["n1"])
    assert cases["measured: 8 cases"] == []
    assert cases["counters"] == [(Skipped, "perf_event_paranoid is 3")]
    assert cases["latency"] == [(Error, "it died\N{REPLACEMENT CHARACTER}[0m")]
    assert sum(r[0] == (Error, "11 % of the pages lie on NUMA node 3") for r in cases.values() if r) == 1
    assert ("partition", "all") in {(p.name, p.value) for p in suites["n1"].properties()}
    assert results(suites["all hosts"]) == {"figures": [(Skipped, "not all hosts are drawn")]}
