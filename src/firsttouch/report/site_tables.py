# SPDX-License-Identifier: Apache-2.0
"""The tables that a site adds to the summary of its reports: which metrics, statistics and groups of hosts.

They are stated in summary.yaml, whose keys are the fields of the structures below. :func:`load` reads and checks
it, :func:`of_fleets` and :func:`of_hosts` compute the tables, and :func:`files` writes them for a spreadsheet.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from firsttouch import documents, paths
from firsttouch.documents import attributes
from firsttouch.errors import BadInput, did_you_mean
from firsttouch.host.host_lists import unfolded
from firsttouch.judge.drift import Configuration
from firsttouch.judge.findings import Findings
from firsttouch.judge.sprt import Bools, Floats, Ints
from firsttouch.judge.statistics import DESCRIPTIVE
from firsttouch.judge.verdict import natural
from firsttouch.records.cases import Case, distinguished, grouped
from firsttouch.records.catalogue import checks, direction
from firsttouch.report.aspect import spread_cell
from firsttouch.report.document import Block, Cell, Entry, Paragraph, Section, Table
from firsttouch.report.model import HostView
from firsttouch.report.text import count, csv_cell, listed
from firsttouch.units import number

NAME = "summary.yaml"
#: The file of a report with all rows.
FILE = "summary.csv"
#: The statistic that is a share of the median and not in the unit of the metric.
_SHARE = "spread"
_NOT_RECORDED = "not recorded"

# ----------------------------------------------------------------------
# The file

Patterns = Annotated[tuple[str, ...], {"minItems": 1, "description": "a list of names of metrics, or patterns"}]
Statistic = Annotated[str, {"enum": [*DESCRIPTIVE], "description": f"one of {', '.join(DESCRIPTIVE)}"}]
Statistics = Annotated[tuple[Statistic, ...], {"minItems": 1, "description": "a list of statistics"}]


class HostGroup(Struct, frozen=True):
    """Hosts that meet all the conditions; without any, all hosts."""

    #: A list as Slurm writes it, such as n[1-8],m2.
    hosts: str = ""
    system: str = ""
    #: Settings of the hosts' configuration, and patterns of their values.
    settings: dict[str, str] = field(default_factory=dict)


class TableForm(Struct, frozen=True):
    """A table: a row for each metric and group, a column for each statistic."""

    title: Annotated[str, {"minLength": 1, "description": "a title"}]
    metrics: Patterns
    statistics: Statistics = ("median", "minimum", "maximum")
    groups: dict[str, HostGroup] = field(default_factory=dict)
    #: A setting, or "system": its values are the groups.
    by: str = ""
    #: The statistic of a host's cases, for one row of all cases that a pattern names; without it each has a row.
    within: Statistic = ""


class SummaryForm(Struct, frozen=True):
    """The file."""

    tables: tuple[TableForm, ...] = ()


_SCHEMA = documents.schema_of(SummaryForm)


def load() -> Sequence[TableForm]:
    """Return the tables of the user's file, or else of the site's; raises BadInput for a wrong one."""
    files = paths.tables_of(NAME)
    return parse(documents.read_text(files[-1]), files[-1]) if files else ()


def parse(text: str, file: str | Path) -> Sequence[TableForm]:
    """Return the tables of a YAML text; raises BadInput naming *file* and the line."""
    if documents.has_only_comments(text):
        return ()
    document = documents.parse_yaml(text, file)
    document.check(_SCHEMA)
    tables = documents.build(SummaryForm, document.data).tables
    names = dict.fromkeys(
        alias
        for check, entry in checks().items()
        for metric, stated in (*entry.metrics.items(), *entry.data.items())
        for alias in _names(check, metric, stated.unit)
    )
    for place, table in enumerate(tables):
        where = ("tables", place)
        for number_of_pattern, pattern in enumerate(table.metrics):
            head = pattern.partition(",")[0]
            # A wildcard may stand for the rest of a case's name, with its commas.
            begin = re.split(r"[*?[]", head)[0]
            if not any(name.startswith(begin) if begin != head else name == head for name in names):
                reason = f"no metric is called '{head}'{did_you_mean(head, names)}"
                document.problem(reason, *where, "metrics", number_of_pattern)
        if table.by and table.groups:
            document.problem("a table has groups, or groups by a setting, not both", *where, "by")
        for name, group in table.groups.items():
            try:
                _ = unfolded(group.hosts) if group.hosts else ()
            except BadInput as error:
                document.problem(str(error), *where, "groups", name, "hosts")
    document.refuse_problems()
    return tables


def _names(check: str, metric: str, unit: str) -> tuple[str, str, str]:
    """Return the names of a metric: alone, with its check, and in words."""
    words = Case("", check, metric, {}, unit, direction(check, metric, unit)).title_of_metric
    return metric, f"{check}/{metric}", words


def _is_called(case: Case, pattern: str) -> bool:
    names = (*_names(case.check, case.metric, case.unit), case.title)
    return any(fnmatchcase(name, pattern) for name in names)


# ----------------------------------------------------------------------
# What was measured


class _Host(NamedTuple):
    name: str
    system: str
    settings: Mapping[str, str]


class _Part(NamedTuple):
    """The *values* of one case on hosts, whose numbers are *host* + *first*."""

    first: int
    host: NDArray[np.integer[Any]]
    value: Floats


class _Values(Struct, frozen=True):
    """The hosts, and by the key of a case the case and its parts."""

    hosts: Sequence[_Host]
    cases: Mapping[str, Case]
    parts: Mapping[str, Sequence[_Part]]

    def of(self, keys: Iterable[str], within: str) -> tuple[Ints, Floats]:
        """Return the numbers of hosts and their values: the statistic *within* the values of each host."""
        parts = [part for key in keys for part in self.parts[key]]
        host = np.concatenate([part.host.astype(np.int64) + part.first for part in parts])
        value = np.concatenate([part.value for part in parts])
        host, value = host[np.isfinite(value)], value[np.isfinite(value)]
        order = np.argsort(host, kind="stable")
        hosts, counts = np.unique(host[order], return_counts=True)
        of_hosts = np.split(value[order], np.cumsum(counts)[:-1]) if within else []
        return hosts, np.array([DESCRIPTIVE[within](v) for v in of_hosts]) if within else value[order]


def _of_findings(findings: Sequence[Findings], configurations: Mapping[str, Configuration]) -> _Values:
    hosts: list[_Host] = []
    cases: dict[str, Case] = {}
    parts: dict[str, list[_Part]] = {}
    for fleet in findings:
        samples = fleet.samples
        for place, case in enumerate(samples.cases):
            where = samples.groups(place)
            cases.setdefault(case.key, case)
            parts.setdefault(case.key, []).append(_Part(len(hosts), samples.host[where], fleet.value[where]))
        for host in samples.hosts:
            configuration = configurations.get(host)
            hosts.append(_Host(host, fleet.system.name, configuration.settings if configuration else {}))
    return _Values(hosts, cases, parts)


def _of_views(views: Sequence[HostView]) -> _Values:
    cases: dict[str, Case] = {}
    parts: dict[str, list[_Part]] = {}
    hosts: list[_Host] = []
    for place, view in enumerate(views):
        hosts.append(_Host(view.host, view.system, view.settings))
        for record in view.valid:
            case = Case.of(record)
            cases.setdefault(case.key, case)
            parts.setdefault(case.key, []).append(_Part(place, np.zeros(1, np.int64), np.array([record.value])))
    titled = distinguished([*cases.values()])
    return _Values(hosts, dict(zip(cases, titled, strict=True)), parts)


# ----------------------------------------------------------------------
# The tables


class Row(NamedTuple):
    """The statistics of a metric over the hosts of a group; NaN: not defined."""

    metric: str
    unit: str
    group: str
    hosts: int
    values: Sequence[float]


class SiteTable(Struct, frozen=True):
    """A table with its *rows*, and *notes* on what has no row."""

    title: str
    statistics: Sequence[str]
    rows: Sequence[Row]
    notes: Sequence[str]

    def section(self, key: str, most: int) -> Section:
        """Return the section of a page or a ticket: the first *most* rows, and the notes. *key* is its address."""
        rows: list[tuple[Entry, ...]] = [
            (row.metric, row.unit, row.group, row.hosts, *map(_cell, self.statistics, row.values))
            for row in self.rows
        ]
        blocks: list[Block] = []
        if rows:
            header = ("metric", "unit", "group", "hosts", *self.statistics)
            blocks += Table(self.title, header, rows).first(most, FILE)
        blocks += [Paragraph(f"{note[0].upper()}{note[1:]}.", "small") for note in self.notes]
        return Section(self.title, blocks, key)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "title": self.title,
            "statistics": list(self.statistics),
            "rows": [
                {
                    **attributes(row, "metric", "unit", "group", "hosts"),
                    **{
                        n: v if math.isfinite(v) else None
                        for n, v in zip(self.statistics, row.values, strict=True)
                    },
                }
                for row in self.rows
            ],
            "notes": list(self.notes),
        }


def _cell(statistic: str, value: float) -> Cell:
    if not math.isfinite(value):
        return Cell()
    return spread_cell(value) if statistic == _SHARE else Cell(value, number)


#: Rows of a table on a page and in a ticket; summary.csv has all.
_ON_PAGE, _IN_TICKET = 200, 30


def page_sections(tables: Sequence[SiteTable]) -> list[Section]:
    """Return the sections of a page."""
    return [table.section(f"site{place}", _ON_PAGE) for place, table in enumerate(tables, start=1)]


def ticket_sections(tables: Sequence[SiteTable]) -> list[Section]:
    """Return the sections of a ticket."""
    return [table.section("", _IN_TICKET) for table in tables]


def files(tables: Sequence[SiteTable]) -> dict[str, str]:
    """Return the file of a report with the rows of all *tables*, by its name; none without tables."""
    return {FILE: _csv(tables)} if tables else {}


def _csv(tables: Sequence[SiteTable]) -> str:
    """Return rows as CSV, with a column for each statistic of any table."""
    statistics = list(dict.fromkeys(name for table in tables for name in table.statistics))
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["table", "metric", "unit", "group", "hosts", *statistics])
    for table in tables:
        for row in table.rows:
            values = {n: repr(v) for n, v in zip(table.statistics, row.values, strict=True) if math.isfinite(v)}
            cells = (table.title, row.metric, row.unit, row.group, row.hosts)
            writer.writerow([*map(csv_cell, cells), *(values.get(name, "") for name in statistics)])
    return text.getvalue()


def of_fleets(
    forms: Sequence[TableForm], findings: Sequence[Findings], configurations: Mapping[str, Configuration]
) -> list[SiteTable]:
    """Return the tables of the hosts of *findings*; *configurations* are those of hosts by name."""
    values = _of_findings(findings, configurations) if forms else None
    return [_table(form, values) for form in forms if values]


def of_hosts(forms: Sequence[TableForm], views: Sequence[HostView]) -> list[SiteTable]:
    """Return the tables of a few hosts."""
    values = _of_views(views) if forms else None
    return [_table(form, values) for form in forms if values]


def _table(form: TableForm, values: _Values) -> SiteTable:
    groups = _groups(form, values.hosts)
    empty = [name for name, members in groups.items() if not members.any()]
    notes = [f"no host of this report is in {listed(empty)}"] if empty else []
    rows: dict[tuple[str, str], list[Row]] = {}
    for pattern in form.metrics:
        keys = [key for key, case in values.cases.items() if _is_called(case, pattern)]
        if not keys:
            notes.append(f"no record of this report is called {pattern}")
        for metric, unit, of_row in _of_rows(form, pattern, values, keys):
            if (metric, unit) not in rows:
                of_groups = _statistics(form.statistics, *values.of(of_row, form.within), groups)
                rows[metric, unit] = [Row(metric, unit, *of_group) for of_group in of_groups]
    return SiteTable(form.title, form.statistics, [row for of_metric in rows.values() for row in of_metric], notes)


def _of_rows(
    form: TableForm, pattern: str, values: _Values, keys: Sequence[str]
) -> Iterator[tuple[str, str, Sequence[str]]]:
    """Yield the name, the unit and the cases of each row of a pattern."""
    if not form.within:
        for key in keys:
            case = values.cases[key]
            yield case.title, case.unit, [key]
        return
    _, comma, rest = pattern.partition(",")
    of_metric = grouped(keys, lambda key: (values.cases[key].title_of_metric, values.cases[key].unit))
    for (metric, unit), of_row in of_metric.items():
        yield f"{metric}{comma}{rest} ({form.within} of {count(len(of_row), 'case')})", unit, of_row


def _statistics(
    names: Sequence[str], hosts: Ints, value: Floats, groups: Mapping[str, Bools]
) -> Iterator[tuple[str, int, Sequence[float]]]:
    """Yield each group with hosts that have a value, their number, and the statistics."""
    for group, members in groups.items():
        of_group = value[members[hosts]]
        if len(of_group):
            yield group, len(of_group), [float(DESCRIPTIVE[name](of_group)) for name in names]


def _groups(form: TableForm, hosts: Sequence[_Host]) -> dict[str, Bools]:
    """Return which of *hosts* are in each group."""
    if form.by:
        settings = [h.system if form.by == "system" else h.settings.get(form.by, _NOT_RECORDED) for h in hosts]
        texts = np.array(settings, dtype=np.str_)
        return {value: texts == value for value in sorted({*settings}, key=natural)}
    groups = form.groups or {"all hosts": HostGroup()}
    return {name: _members(group, hosts) for name, group in groups.items()}


def _members(group: HostGroup, hosts: Sequence[_Host]) -> Bools:
    listed = {*unfolded(group.hosts)} if group.hosts else {host.name for host in hosts}
    return np.array(
        [
            host.name in listed
            and group.system in {"", host.system}
            and all(fnmatchcase(host.settings.get(k, ""), pattern) for k, pattern in group.settings.items())
            for host in hosts
        ],
        dtype=np.bool_,
    )
