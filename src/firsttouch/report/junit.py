# SPDX-License-Identifier: Apache-2.0
"""junit.xml: a report for continuous integration, a test suite per host and a test case per judged metric.

The form is what Jenkins and GitLab read. A pass is a test case without a child, a fail has a ``failure``, an
invalid metric or a check without a result an ``error``, an undecided, suspect or skipped one a ``skipped``; each
with its reason.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from firsttouch.judge.verdict import HostSummary, HostVerdict
from firsttouch.records.cases import identifying
from firsttouch.report.model import HostView, Problem
from firsttouch.report.text import case, clean, count

if TYPE_CHECKING:
    from junitparser import TestCase

#: Verdict, or kind of problem -> the child of its test case.
_CHILDREN = {
    "pass": "",
    "undecided": "skipped",
    "suspect": "skipped",
    "missing": "skipped",
    "skipped": "skipped",
    "invalid": "error",
    "failed": "error",
    "fail": "failure",
}
#: Lines of evidence in the test case of a host's verdict.
_KEPT = 20
#: The suite of problems that belong to no single host.
_NO_HOST = "all hosts"

#: Test cases by host, and the properties of each host's suite.
_Cases = Mapping[str, list["TestCase"]]
_Properties = Mapping[str, Sequence[tuple[str, str]]]


def text(
    views: Sequence[HostView],
    hosts: Sequence[HostSummary],
    problems: Sequence[Problem],
    *,
    title: str,
    generated: str,
    each: bool = True,
) -> str:
    """Return junit.xml; *generated* is the time of the report in ISO 8601.

    The test cases of a judged host are its metrics, or only its verdict without *each*; those of another host are
    the checks that gave a result.
    """
    cases: dict[str, list[TestCase]] = defaultdict(list)
    names: dict[int, str] = {}
    properties: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for view in views:
        properties[view.host] += [("system", view.system), ("partition", view.partition)]
    for summary in hosts:
        properties[summary.host] += [("system", summary.system), ("verdict", summary.verdict)]
        if each and (verdict := summary.detail):
            properties[summary.host] += [("cause", cause) for cause in verdict.causes]
            cases[summary.host] += _findings(verdict, names)
        else:
            cases[summary.host].append(_verdict(summary))
    judged = {(summary.host, summary.system) for summary in hosts}
    for view in views:
        cases[view.host] += () if (view.host, view.system) in judged else _records(view)
    for p in problems:
        cases[p.host or _NO_HOST].append(_case(p.check, p.name, p.kind, p.reason))
    return _file(title, cases, properties, generated)


def _verdict(summary: HostSummary) -> TestCase:
    """Return the verdict of a host as one test case."""
    counts = ", ".join(f"{n} {word}" for word, n in summary.counts.items())
    missing = [f"{count(summary.missing, 'metric')} missing"] if summary.missing else []
    detail = summary.detail
    evidence = [*detail.causes, *(line.text() for line in detail.findings_evidence[:_KEPT])] if detail else []
    reason = "; ".join([*evidence, counts or "nothing was judged", *missing])
    return _case("verdict", f"verdict of {summary.host}", summary.verdict, reason)


def _findings(verdict: HostVerdict, names: dict[int, str]) -> Iterator[TestCase]:
    """Yield a test case for each finding; *names* keeps the names of parameters that hosts share, by identity."""
    for f in verdict.findings:
        if (name := names.get(id(f.case))) is None:
            name = names[id(f.case)] = case(f.case)
        yield _case(f.check, f"{f.metric} {name}", f.verdict, f.why)
    for missing in verdict.missing:
        yield _case("verdict", f"missing: {missing}", "missing", missing)
    if verdict.blind_reason:
        yield _case("verdict", "the comparison with the fleet", "undecided", verdict.blind_reason)
    elif not verdict.findings:
        yield _case("verdict", "nothing was judged", "undecided", "; ".join(verdict.evidence))


def _records(view: HostView) -> Iterator[TestCase]:
    for check in sorted({r.check for r in view.valid}):
        yield _case(check, f"measured: {count(len(view.of(check)), 'case')}", "pass", "")
    for r in view.invalid:
        yield _case(r.check, f"{r.metric} {case(identifying(r.check, r.parameters))}", "invalid", r.reason)


def _case(check: str, name: str, kind: str, reason: str) -> TestCase:
    from junitparser import Error, Failure, Skipped, TestCase  # noqa: PLC0415 - only where a report is written

    # Readers add up the times of the test cases, and none of these is a duration.
    test = TestCase(clean(name).strip(), ".".join(filter(None, ("firsttouch", clean(check)))), 0)
    if child := _CHILDREN[kind]:
        result = {"failure": Failure, "error": Error, "skipped": Skipped}[child](
            clean(reason) or "no reason was recorded", None if child == "skipped" else kind
        )
        result.text = result.message
        test.append(result)
    return test


def _file(title: str, cases: _Cases, properties: _Properties, generated: str) -> str:
    from junitparser import JUnitXml, TestSuite  # noqa: PLC0415 - see _case

    root = JUnitXml(clean(title))
    for host, tests in sorted(cases.items()):
        suite = TestSuite(clean(host))
        suite.hostname, suite.timestamp = suite.name, generated
        for name, value in dict.fromkeys(properties.get(host, ())):
            suite.add_property(name, clean(value))
        suite.add_testcases(tests)
        root.append(suite)
    root.update_statistics()
    document = ET.fromstring(root.tostring())  # noqa: S314 - written above
    ET.indent(document)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(document, encoding="unicode") + "\n"
