# SPDX-License-Identifier: Apache-2.0
"""The catalogue of checks, from metrics.toml: their titles and order, metrics, and the roles of their parameters.

References may name no other checks and metrics: they could never match a record. Records may; a report lists them
as other metrics.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from firsttouch import documents
from firsttouch.documents import FileTable, Word
from firsttouch.units import UNITS, Better, better

#: How a check gets its values: it reads them from the host, measures them, or times an aligner.
CheckKind = Literal["read", "measured", "aligner"]
#: The form of a parameter that a figure needs: a number from 1, a share up to 1, NUMA nodes (one or a list), text.
ParameterForm = Literal["number", "share", "nodes", "text"]

#: The key of the definitions that all checks share.
_ALL = "*"
#: Precedes the name of a check from ReFrame's performance logs: checks of the catalogue have other parameters.
FROM_LOGS = "log."
#: The unit of a record.
Unit = Annotated[
    str,
    Meta(pattern=rf"^({'|'.join(map(re.escape, ['1', *UNITS]))})\Z", description=f"a unit: 1, {', '.join(UNITS)}"),
]


class Limit(FileTable, frozen=True):
    """The verdict of a host with more events than *most*, in one session or per hour.

    One that is *lasting* counts the events of all sessions with the host's present parts. With *by*, a parameter,
    the newest session is the newest one of the metric with the same value of it.
    """

    verdict: Literal["suspect", "fail"]
    most: Annotated[float, Meta(ge=0)]
    per_hour: bool = False
    lasting: bool = False
    by: str = ""

    @property
    def is_proof(self) -> bool:
        """Whether the events of one record fail a host."""
        return self.verdict == "fail" and not self.per_hour


#: The limit of counts, such as of errors, in checks that the catalogue has not.
_NO_EVENTS = Limit("fail", most=0)


class Metric(FileTable, frozen=True):
    """A metric's unit, and which values are better."""

    unit: Unit
    better: Better


class Check(FileTable, frozen=True):
    """An entry of the catalogue."""

    #: The metrics that are judged. A file states only the unit if it tells which values are better.
    metrics: Mapping[str, Metric]
    #: The parameters that identify a case and may be named by a reference, in the order of names.
    parameters: tuple[str, ...]
    #: The metrics that are never judged.
    data: Mapping[str, Metric] = field(default_factory=dict)
    #: The parameters along which the cases of one curve or matrix differ.
    axes: frozenset[str] = frozenset()
    #: Parameters that are not part of an identity.
    results: frozenset[str] = frozenset()
    #: Parameters that names state, in addition to the ones that the names of all checks state.
    named: frozenset[str] = frozenset()
    #: The heading of its section in a report.
    title: Word = ""
    kind: CheckKind = "measured"
    #: Whether its counts hold for an emulated host, too.
    emulated_counts: bool = False
    #: The part that its cases show, by their kind: core and cache (latencies), local, remote, loaded, any.
    shows: Mapping[str, str] = field(default_factory=dict)
    #: Whether its values follow the clock of the cores and of their caches, and not memory.
    follows_clock: bool = False
    #: The parameters without which no figure can show a record.
    needed: Mapping[str, ParameterForm] = field(default_factory=dict)
    #: The metrics that figures and facts of a report show; True: all.
    drawn: frozenset[str] | bool = False
    #: How to read its tables. A report without drawings of the check has one table of each metric.
    tables: str = ""
    #: The limits of metrics that count events.
    limits: Mapping[str, Limit] = field(default_factory=dict)

    def draws(self, metric: str) -> bool:
        """Return whether a figure or a fact of a report shows the metric."""
        return bool(self.tables) or (self.drawn if isinstance(self.drawn, bool) else metric in self.drawn)


#: The types of parameters (:mod:`firsttouch.records.schema`).
ParameterType = Literal["text", "number", "whole", "wholes", "whole_or_wholes", "cpu_list", "texts", "places"]


class Common(FileTable, frozen=True):
    """The definitions that all checks share."""

    #: The parameters that the judge, reports and advice compute with, by the type that they have in every record.
    types: Mapping[ParameterType, tuple[str, ...]] = field(default_factory=dict)

    #: Parameters that identify the cases of any check, although no reference may name them.
    conditions: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    #: Parameters that the names of all checks state.
    named: tuple[str, ...] = ()
    #: Parameters whose values need no label in a title, in the order of titles.
    unlabelled: tuple[str, ...] = ()
    #: The parameters that a name states first where it would not be unique without.
    distinctive: tuple[str, ...] = ()


class Catalogue(Struct, frozen=True):
    """The checks by name, in the order of a report, and the definitions that they share."""

    checks: Mapping[str, Check]
    common: Common = Common()


@functools.cache
def catalogue() -> Catalogue:
    """Return the catalogue; the site's and the user's files add to it and may set limits."""
    first, *others = documents.tables("metrics.toml", parse)
    return functools.reduce(_merged, others, first)


def _merged(catalogue: Catalogue, added: Catalogue) -> Catalogue:
    checks = dict(catalogue.checks)
    for name, check in added.checks.items():
        checks[name] = _extended(checks[name], check) if name in checks else check
    names = [name for name in Common.__struct_fields__ if name != "types"]
    common = {name: (*getattr(catalogue.common, name), *getattr(added.common, name)) for name in names}
    types, more = catalogue.common.types, added.common.types
    types = {kind: (*types.get(kind, ()), *more.get(kind, ())) for kind in {**types, **more}}
    return Catalogue(checks, Common(types, **common))


def _extended(check: Check, added: Check) -> Check:
    """Return a check with the additions of a later file: metrics and parameters that it has stay as they are."""
    drawn = (
        check.drawn or added.drawn
        if isinstance(check.drawn, bool) or isinstance(added.drawn, bool)
        else check.drawn | added.drawn
    )
    return replace(
        check,
        metrics={**{name: m for name, m in added.metrics.items() if name not in check.data}, **check.metrics},
        data={**added.data, **check.data},
        parameters=tuple(dict.fromkeys((*check.parameters, *added.parameters))),
        axes=check.axes | added.axes,
        results=check.results | added.results,
        named=check.named | added.named,
        needed={**added.needed, **check.needed},
        shows={**added.shows, **check.shows},
        drawn=drawn,
        tables=check.tables or added.tables,
        limits={**check.limits, **added.limits},
    )


def parse(text: str, file: str) -> Catalogue:
    """Return the catalogue of a TOML text; raises BadInput naming *file*, the line and the entry."""
    document = documents.parse_toml(text, file)
    for name, table in document.data.items():
        if name != _ALL and isinstance(table, dict):
            table.setdefault("title", name.replace("_", " ").capitalize())
            for metrics in (table.get(key) for key in ("metrics", "data")):
                _state_better(metrics if isinstance(metrics, dict) else {})
    checks = {name: document.convert(Check, name) for name in document.data if name != _ALL}
    return Catalogue(checks, document.convert(Common, _ALL) if _ALL in document.data else Common())


def _state_better(metrics: dict[str, Any]) -> None:
    """Complete the metrics that are units alone."""
    for name, unit in metrics.items():
        if isinstance(unit, str):
            metrics[name] = {"unit": unit, "better": better(unit)}


def checks() -> Mapping[str, Check]:
    """Return the checks by name, in the order of a report."""
    return catalogue().checks


def order(check: str) -> tuple[int, str]:
    """Return a key that sorts checks as a report shows them; those that the catalogue has not follow by name."""
    names = list(checks())
    return (names.index(check) if check in checks() else len(names), check)


def direction(check: str, metric: str, unit: str) -> Better:
    """Return which values of a metric are better, by the catalogue or else by the unit."""
    return better_of(check, metric, better(unit))


def limit_of(check: str, metric: str, unit: str, better: Better, *, is_whole: bool) -> Limit | None:
    """Return the limit of a metric that counts events, None if it has none.

    In a check that the catalogue has not, whole numbers without a unit of which lower ones are better are counts
    of events. Performance logs may lack the unit of any metric, so they have no counts.
    """
    if described := checks().get(check):
        return described.limits.get(metric)
    is_count = is_whole and (unit, better) == ("1", "lower") and not check.startswith(FROM_LOGS)
    return _NO_EVENTS if is_count else None


def better_of(check: str, metric: str, otherwise: Better) -> Better:
    """Return which values of a metric are better by the catalogue, whatever a record says; else *otherwise*."""
    entry = checks().get(check)
    stated = entry and (entry.metrics.get(metric) or entry.data.get(metric))
    return stated.better if stated else otherwise


def of_kind(kind: CheckKind) -> list[str]:
    """Return the names of the checks of a kind."""
    return [name for name, check in checks().items() if check.kind == kind]


def counts_if_emulated(check: str, unit: str) -> bool:
    """Return whether values in *unit* of a check hold for an emulated host, too: its speed is the emulator's."""
    return unit == "1" and check in checks() and checks()[check].emulated_counts
