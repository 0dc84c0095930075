# SPDX-License-Identifier: Apache-2.0
"""Verdicts in a document: the worst host first, with its possible cause and the evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from firsttouch.judge.verdict import ORDER, HostVerdict, Word
from firsttouch.report.document import Fold, Group, Listing, Paragraph, Span, Table, word_span

#: Lines of evidence that a page has.
_ON_PAGE = 20


def worst_first(verdicts: Sequence[HostVerdict]) -> list[HostVerdict]:
    """Return *verdicts* in order of severity."""
    return sorted(verdicts, key=lambda v: (-ORDER.index(v.verdict), v.host))


def counted(verdicts: Sequence[HostVerdict]) -> str:
    """Return how many hosts have each verdict: ``Verdicts: 1 fail, 3 pass``."""
    return f"Verdicts: {', '.join(words(Counter(v.verdict for v in verdicts)))}"


def words(counts: Mapping[Word, int]) -> list[str]:
    """Return the number of hosts with each verdict, the worst first: ``1 fail``."""
    return [f"{counts[word]} {word}" for word in reversed(ORDER) if counts.get(word)]


def table(verdicts: Sequence[HostVerdict], *, lines: int) -> Table:
    """Return the table of *verdicts* with the first *lines* of evidence of each."""
    rows = [(v.host, v.verdict, _judged(v), v.cause, _evidence(v, lines)) for v in verdicts]
    return Table("Verdicts", ("host", "verdict", "judged", "possible cause", "evidence"), rows)


def _evidence(verdict: HostVerdict, lines: int) -> str:
    texts = [line.text() for line in verdict.findings_evidence]
    more = [f"and {len(texts) - lines} more"] if len(texts) > lines else []
    return "; ".join([*texts[:lines], *more])


def _judged(verdict: HostVerdict) -> str:
    return f"{sum(f.verdict == 'pass' for f in verdict.findings)} of {len(verdict.findings)} pass"


def folds(
    verdicts: Sequence[HostVerdict],
    keys: Mapping[str, str],
    pages: Mapping[str, str] = MappingProxyType({}),
    *,
    complete: str = "summary.json",
) -> Group:
    """Return a line for each verdict, with its evidence folded.

    *keys* are the addresses of hosts within the page, *pages* those of their own pages. *complete* is the
    file with all evidence.
    """
    return Group("hosts", [_fold(v, keys[v.host], pages.get(v.host, ""), complete) for v in verdicts])


def _fold(verdict: HostVerdict, key: str, page: str, complete: str) -> Fold:
    lines, judged = verdict.findings_evidence, _judged(verdict)
    why = (lines[0].sentence_of(verdict.verdict) if lines else "") or judged
    why += f"; and {len(lines) - 1} more" if len(lines) > 1 else ""
    texts = [line.text() for line in lines[:_ON_PAGE]]
    texts += [f"and {len(lines) - _ON_PAGE} more in {complete}"] if len(lines) > _ON_PAGE else []
    cause = f" Possible cause: {verdict.cause}." if verdict.cause else ""
    links = [" ", Span(f"All results of {verdict.host}", link=page)] if page else []
    links += [" ", Span(f"Link to {verdict.host}", link=f"#{key}")]
    return Fold(
        [word_span(verdict.verdict), " ", Span(verdict.host, "b"), " ", Span(why, tone="why")],
        [Paragraph([f"{judged}.{cause}", *links], key=key), *([Listing(texts)] if len(lines) > 1 else [])],
    )
