# SPDX-License-Identifier: Apache-2.0
"""junit.xml: a report for continuous integration, a test suite per host and a test case per judged metric.

Its form is what Jenkins and GitLab read: pass is a test case without a child, fail a ``failure``, invalid (and
what gave no result) an ``error``, suspect and skipped ones are ``skipped``; each with its reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from xml.etree import ElementTree as ET

from firsttouch.judge.verdict import HostVerdict
from firsttouch.report.model import HostView, Problem, case_of
from firsttouch.report.text import case, clean, count

Result = Literal["", "failure", "error", "skipped"]
#: Verdict -> the child of its test case.
_OF_VERDICT: dict[str, Result] = {"pass": "", "suspect": "skipped", "invalid": "error", "fail": "failure"}
_OF_PROBLEM: dict[str, Result] = {"failed": "error", "invalid": "error", "skipped": "skipped"}
#: The suite of what concerns no host in particular.
_NO_HOST = "all hosts"


@dataclass(frozen=True)
class _Case:
    check: str
    name: str
    result: Result
    kind: str = ""
    reason: str = ""


def text(
    views: Sequence[HostView],
    verdicts: Sequence[HostVerdict],
    problems: Sequence[Problem],
    *,
    title: str,
    generated: str,
) -> str:
    """Return the file; *generated* is the report's time in ISO 8601, which the suites state.

    A host's metrics are test cases where it was judged; where it was not, a check that gave a result is one.
    """
    suites: dict[str, list[_Case]] = {}
    facts: dict[str, list[tuple[str, str]]] = {}
    for view in views:
        facts.setdefault(view.host, []).extend([("system", view.system), ("partition", view.partition)])
    judged = {v.host for v in verdicts}
    for verdict in verdicts:
        stated = [("verdict", verdict.verdict), *(("cause", cause) for cause in verdict.causes)]
        facts.setdefault(verdict.host, [("system", verdict.system)]).extend(stated)
        suites.setdefault(verdict.host, []).extend(_findings(verdict))
    for view in views:
        mine = suites.setdefault(view.host, [])
        if view.host not in judged:
            mine += _checks(view)
            mine += _invalid(view)
    for problem in problems:
        found = _problem(problem.name, problem.kind, problem.reason, problem.check)
        suites.setdefault(problem.host or _NO_HOST, []).append(found)
    return _file(title, suites, facts, generated)


def of_fleet(document: Mapping[str, Any]) -> str:
    """Return the file of a fleet's report by its *document*: a test case for each host, its verdict."""
    suites: dict[str, list[_Case]] = {}
    facts: dict[str, list[tuple[str, str]]] = {}
    for system in document["systems"]:
        for one in system["hosts"]:
            verdict, findings = one["verdict"], one["findings"]
            counted = ", ".join(f"{n} {word}" for word, n in findings.items())
            lacking = [f"{count(one['missing'], 'metric')} missing"] if one["missing"] else []
            why = "; ".join(
                [*one.get("causes", ()), *one.get("evidence", ()), counted or "nothing was judged", *lacking]
            )
            case = _Case("verdict", f"verdict of {one['host']}", _OF_VERDICT[verdict], verdict, why)
            suites.setdefault(one["host"], []).append(case)
            facts.setdefault(one["host"], []).extend([("system", system["system"]), ("verdict", verdict)])
    for p in document["problems"]:
        suites.setdefault(p["host"] or _NO_HOST, []).append(_problem(p["name"], p["kind"], p["reason"]))
    return _file(document["title"], suites, facts, document["generated"])


def _problem(name: str, kind: str, reason: str, check: str = "") -> _Case:
    return _Case(check, name, _OF_PROBLEM[kind], kind, reason)


def _file(
    title: str,
    suites: Mapping[str, Sequence[_Case]],
    facts: Mapping[str, Iterable[tuple[str, str]]],
    generated: str,
) -> str:
    every = _counts(c for cases in suites.values() for c in cases)
    root = ET.Element("testsuites", {"name": clean(title), **every})
    for host, cases in sorted(suites.items()):
        _suite(root, host, facts.get(host, ()), cases, generated)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _findings(verdict: HostVerdict) -> Iterable[_Case]:
    for f in verdict.findings:
        yield _Case(f.check, f"{f.metric} {case(f.case)}", _OF_VERDICT[f.verdict], f.verdict, f.why)
    for missing in verdict.missing:
        yield _Case("verdict", f"missing: {missing}", "skipped", "missing", missing)
    if not verdict.findings:
        yield _Case("verdict", "nothing was judged", "skipped", "suspect", "; ".join(verdict.evidence))


def _checks(view: HostView) -> Iterable[_Case]:
    for check in sorted({r.check for r in view.valid}):
        yield _Case(check, f"measured: {count(len(view.of(check)), 'case')}", "")


def _invalid(view: HostView) -> Iterable[_Case]:
    for r in view.invalid:
        yield _Case(r.check, f"{r.metric} {case(case_of(r))}", "error", "invalid", r.reason)


def _counts(cases: Iterable[_Case]) -> dict[str, str]:
    known: list[str] = [c.result for c in cases]
    named = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    return {"tests": str(len(known)), **{name: str(known.count(result)) for name, result in named.items()}}


def _suite(
    root: ET.Element, host: str, facts: Iterable[tuple[str, str]], cases: Sequence[_Case], generated: str
) -> None:
    # Nothing here is a test's duration, but readers add them up.
    known = {"name": clean(host), "hostname": clean(host), "timestamp": generated, "time": "0"}
    suite = ET.SubElement(root, "testsuite", {**known, **_counts(cases)})
    if said := list(dict.fromkeys(facts)):
        properties = ET.SubElement(suite, "properties")
        for name, value in said:
            ET.SubElement(properties, "property", name=name, value=clean(value))
    for one in cases:
        name = ".".join(filter(None, ("firsttouch", clean(one.check))))
        test = ET.SubElement(suite, "testcase", classname=name, name=clean(one.name).strip(), time="0")
        if one.result:
            reason = clean(one.reason) or "no reason was recorded"
            told = {"message": reason} if one.result == "skipped" else {"message": reason, "type": one.kind}
            ET.SubElement(test, one.result, told).text = reason
