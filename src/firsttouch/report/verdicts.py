# SPDX-License-Identifier: Apache-2.0
"""Verdicts in a document: the card at the top of a page, and a line per host with its evidence, worst first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from firsttouch.benchmarks.measure import WIDE
from firsttouch.judge.verdict import ORDER, HostSummary, HostVerdict, Word
from firsttouch.records.cases import by_key
from firsttouch.report import render
from firsttouch.report.aspects import Aspects, topology
from firsttouch.report.document import Card, Fold, Group, Listing, Paragraph, Span, Table, Text, word_span
from firsttouch.report.model import HostView, Problem
from firsttouch.report.text import count, list_names, plain
from firsttouch.systems.expectation import SUSPECTED, answer, deciding
from firsttouch.units import iso

# ----------------------------------------------------------------------
# The verdicts of hosts.

#: The most lines of evidence on a page, and the number of hosts whose evidence is unfolded.
_ON_PAGE, _OPEN = 20, 10
#: The most parts on a card besides the deciding one.
_OTHERS = 2


def worst_first(verdicts: Sequence[HostVerdict]) -> list[HostVerdict]:
    """Return *verdicts* in order of severity."""
    return sorted(verdicts, key=lambda v: (-ORDER.index(v.verdict), v.host))


def count_verdicts(verdicts: Sequence[HostVerdict]) -> str:
    """Return how many hosts have each verdict: ``Verdicts: 1 fail, 3 pass``."""
    return f"Verdicts: {', '.join(words(Counter(v.verdict for v in verdicts)))}"


def words(counts: Mapping[Word, int]) -> list[str]:
    """Return the number of hosts with each verdict, the worst first: ``1 fail``."""
    return [f"{counts[word]} {word}" for word in reversed(ORDER) if counts.get(word)]


def table(verdicts: Sequence[HostVerdict], *, lines: int) -> Table:
    """Return the table of *verdicts* with the first *lines* of evidence of each."""
    rows = []
    for v in verdicts:
        texts = v.findings_evidence
        hidden = [f"and {len(texts) - lines} more"] if len(texts) > lines else []
        rows.append((v.host, v.verdict, _judged(v), v.cause, "; ".join([*texts[:lines], *hidden])))
    return Table("Verdicts", ("host", "verdict", "judged", "possible cause", "evidence"), rows)


def _judged(verdict: HostVerdict) -> str:
    passed = sum(f.verdict == "pass" for f in verdict.findings)
    if verdict.findings:
        return f"{passed} of {len(verdict.findings)} metrics pass"
    return "no metric has a reference" if verdict.unjudged or not verdict.missing else "nothing was measured"


def folds(
    verdicts: Sequence[HostVerdict],
    keys: Mapping[str, str],
    pages: Mapping[str, str] = MappingProxyType({}),
    *,
    complete: str = "summary.json",
) -> Group:
    """Return a line for each verdict with its evidence, unfolded for the first hosts that do not pass.

    *keys* are the addresses of hosts within the page, *pages* the addresses of the hosts' pages. *complete* is the
    file with all evidence.
    """
    lines = [
        _fold(v, keys[v.host], pages.get(v.host, ""), complete, is_open=place < _OPEN and v.verdict != "pass")
        for place, v in enumerate(verdicts)
    ]
    return Group("hosts", lines)


def _fold(verdict: HostVerdict, key: str, page: str, complete: str, *, is_open: bool) -> Fold:
    lines, judged = verdict.findings_evidence, _judged(verdict)
    others = lines[1:_ON_PAGE]
    others += [f"and {len(lines) - _ON_PAGE} more in {complete}"] if len(lines) > _ON_PAGE else []
    cause = [Span("Possible cause:", "b"), f" {verdict.cause}. "] if verdict.cause else []
    links = [" ", Span(f"All results of {verdict.host}", link=page)] if page else []
    return Fold(
        [word_span(verdict.verdict), " ", Span(verdict.host, "b"), " ", Span(_first(verdict), tone="why")],
        [Paragraph([*cause, f"{judged}.", *links], key=key), *([Listing(others)] if others else [])],
        is_open=is_open,
    )


def _first(verdict: HostVerdict) -> str:
    """Return the worst finding of a host, and the number of others."""
    lines = verdict.findings_evidence
    why = lines[0].removeprefix(f"{verdict.verdict}: ") if lines else _judged(verdict)
    return f"{why}; and {len(lines) - 1} more" if len(lines) > 1 else why


# ----------------------------------------------------------------------
# A host.


#: The verdict whose colour and sign an answer uses.
_LIKE: Mapping[str, Word] = {"as expected": "pass", "unknown": "undecided", **dict.fromkeys(SUSPECTED, "suspect")}
#: The next step by the verdict.
_NEXT: Mapping[Word, Text] = {
    "fail": ["Repair what is named. ", Span("firsttouch campaign submit validate", "code"), " judges it again."],
    "invalid": "Measure it again: the measurement itself was wrong.",
    "suspect": "Measure it again: more repetitions decide whether it passes or fails.",
    "undecided": ["Measure it again, or give it references: ", Span("firsttouch baseline", "code"), "."],
    "pass": "Nothing is to be done.",
}
_AS_EXPECTED = (
    "Nothing is to be done. References would show smaller losses: ",
    Span("firsttouch baseline", "code"),
    ".",
)
#: The places to check if a part stays low, by the first word of its name.
_MODULES, _LINKS = "its memory modules and firmware", "the firmware's settings of link speed and width"
_LOOK_AT = {"memory": _MODULES, "modules": _MODULES, "link": _LINKS, "links": _LINKS}


def next_step(verdict: HostVerdict, *, is_judged: bool) -> Text:
    """Return what to do next about a host."""
    if is_judged:
        missing = verdict.verdict == "suspect" and not verdict.bad
        return "Measure what is missing." if missing else _NEXT[verdict.verdict]
    if answer(verdict.expected) == "low":
        low = {e.part.split()[0] for e in verdict.expected if e.answer == "low"}
        places = [f"; if it stays low, look at {place}" for name, place in _LOOK_AT.items() if name in low]
        return f"Measure it again{''.join(places[:1])}."
    first = deciding(verdict.expected)
    if first is None:
        return ["Measure both: ", Span("firsttouch characterize", "code"), "."]
    if first.needs:
        return f"{first.needs[0].upper()}{first.needs[1:]}."
    return _NEXT["undecided"] if first.answer != "as expected" else [*_AS_EXPECTED]


def part_answers(verdict: HostVerdict) -> str:
    """Return the levels of the parts of a host without another verdict."""
    first = deciding(verdict.expected)
    if first is None:
        return "Neither its bandwidth nor its latency was measured."
    others = [e for e in verdict.expected if e.answer != "as expected" and e is not first]
    others.sort(key=lambda e: e.answer != "low")
    reasons = [*by_key((first, *others), lambda e: (e.answer, e.kind, e.unit, e.basis)).values()]
    texts = [
        stated.text().removesuffix(f"; {stated.needs}") + (f", and {len(equal)} more" if equal else "")
        for stated, *equal in reasons[: _OTHERS + 1]
    ]
    if hidden := sum(map(len, reasons[_OTHERS + 1 :])):
        texts.append(f"and {hidden} more")
    return ". ".join(f"{text[0].upper()}{text[1:]}" for text in texts) + "."


def card_of_host(
    view: HostView,
    title: str,
    aspects: Aspects,
    verdict: HostVerdict | None,
    problems: Sequence[Problem],
    *,
    is_judged: bool,
    placement: str = "",
) -> Card:
    """Return the card of a host; *problems* are its checks without a result, *placement* the recommendation."""
    if verdict is None:
        sentence = "There is nothing to compare with."
    elif not is_judged:
        sentence = part_answers(verdict)
    else:
        first = _first(verdict)
        sentence = f"{first[0].upper()}{first[1:]}."
        sentence += f" {_judged(verdict)}." if verdict.findings and verdict.findings_evidence else ""
    named = {
        "Why": sentence,
        "Possible cause": f"{verdict.cause}." if verdict and is_judged and verdict.cause else "",
        "Placement": f"{placement}." if placement else "",
        "Next step": next_step(verdict, is_judged=is_judged) if verdict else "",
    }
    stated = answer(verdict.expected) if verdict and not is_judged else ""
    return Card(
        key=render.card_key(view),
        title=title,
        word=_LIKE.get(stated, verdict.verdict if verdict else ""),
        answer=stated,
        lines={name: text for name, text in named.items() if text},
        warnings=_warnings(view, aspects, problems),
        facts=_facts(view),
    )


def _warnings(view: HostView, aspects: Aspects, problems: Sequence[Problem]) -> list[str]:
    """Return the warnings that a reader needs before using any number of the page."""
    warnings = []
    records = {id(result.record): result.record for result in render.results(aspects)}
    repeated = [r for r in records.values() if r and r.repetitions > 1]
    wide = [r for r in repeated if r.spread > WIDE]
    signs = [view.others_use] if view.others_use else []
    if wide:
        vary = f"{'varies' if len(wide) == 1 else 'vary'} by more than {100 * WIDE:.0f} %"
        signs.append(f"{len(wide)} of {count(len(repeated), 'metric')} {vary}")
    if signs:
        text = f"This host was not idle: {', and '.join(signs)}. "
        text += "Do not use its rates, latencies and times. " if view.others_use else ""
        warnings.append(f"{text}Measure again when it is idle.")
    if view.invalid:
        warnings.append(
            f"{count(len(view.invalid), 'record')} {'is' if len(view.invalid) == 1 else 'are'} invalid: "
            "a placement did not hold, or the output was wrong. No figure shows them."
        )
    if failed := [p for p in problems if p.kind == "failed" and p.host in {"", view.host}]:
        warnings.append(f"{count(len(failed), 'check')} failed: {list_names((p.name for p in failed), most=4)}.")
    return warnings


def _facts(view: HostView) -> list[str]:
    """Return short texts: the description of the host, and the time of the measurement."""
    names = view.settings
    model = names.get("cpu.model") or (view.topology.info.get("CPUModel") if view.topology else None)
    facts = [plain(model)] if model else []
    facts += topology.size_texts(view)
    firmware = " ".join(names[k] for k in ("firmware.vendor", "firmware.version") if k in names)
    facts += [f"firmware {firmware}"] if firmware else []
    days = sorted({r.time[:10] for r in (*view.valid, *view.invalid) if r.time})
    if days:
        facts.append(f"measured {days[0]}" + (f" to {days[-1]}" if len(days) > 1 else ""))
    return facts


# ----------------------------------------------------------------------
# A fleet.


def card_of_fleet(hosts: Sequence[HostSummary], sentence: str, worst: HostVerdict | None, complete: int) -> Card:
    """Return the card of the *hosts* of all systems, with the *worst* that does not pass, if there is one.

    *complete* of them have all results.
    """
    word = worst.verdict if worst else "pass" if hosts else ""
    lines: dict[str, Text] = {"Hosts": sentence}
    if worst:
        lines["Worst"] = f"{worst.host}: {_first(worst)}."
    if word:
        lines["Next step"] = _NEXT[word]
    days = sorted(iso(host.newest)[:10] for host in hosts if host.newest)
    facts = [f"measured {' to '.join(dict.fromkeys((days[0], days[-1])))}"] if days else []
    facts += [f"{complete} of {len(hosts)} have all results"] if hosts else []
    return Card("fleet-card", "the fleet", word, lines, facts=facts)
