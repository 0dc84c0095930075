# SPDX-License-Identifier: Apache-2.0
"""Merges the standard error of an aligner's instances into the text that a single instance would print.

The table ``[summary]`` of an aligner's TOML file has the lines of its summary as templates. Counts are added, and
percentages are computed from the sums. A summary is recognized only if its counts reproduce its text.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from firsttouch.documents import FileTable, Regex, Word, Words
from firsttouch.execution.child_process import end_of_log

#: A count, {reads} or with commas {reads:,}, or a percentage, {aligned%reads} or {2*pairs+single%2*paired+reads}.
_FIELD = re.compile(r"\{([a-z0-9_*+]+)(?:%([a-z0-9_*+]+))?(:,)?\}")
_TERM = re.compile(r"(?:(\d+)\*)?([a-z][a-z0-9_]*)")
#: Separates the forms of a line, of which an aligner prints one.
_OR = " || "
#: The most distinct lines that are compared with lines of other instances.
_MOST_COMPARED = 10_000

Values = Mapping[str, Decimal]


class _Field(Struct, frozen=True):
    """A number in a line: the sum *part*, or its percentage of the sum *whole*; *commas* divide thousands."""

    part: tuple[tuple[int, str], ...]
    whole: tuple[tuple[int, str], ...]
    commas: bool

    @property
    def name(self) -> str:
        """The name of a count; empty for a percentage."""
        return "" if self.whole else self.part[0][1]

    def text(self, values: Values, decimals: int) -> str:
        """Return the number of *values*, with this number of *decimals*."""
        part = sum((factor * values.get(name, Decimal()) for factor, name in self.part), Decimal())
        if not self.whole:
            return f"{part:{',' if self.commas else ''}.{decimals}f}"
        whole = sum(factor * values.get(name, Decimal()) for factor, name in self.whole)
        # In double precision, as aligners compute it.
        return f"{100.0 * float(part) / float(whole) if whole else 0.0:.{decimals}f}%"


class _Form(Struct, frozen=True):
    """One form of a line: its *template*, the regular *expression* for it, and its *fields* in order."""

    template: str
    expression: re.Pattern[str]
    fields: tuple[_Field, ...]

    @property
    def counts(self) -> frozenset[str]:
        """The names of the counts that it has."""
        return frozenset(field.name for field in self.fields if field.name)

    def text(self, line: str, values: Values) -> str:
        """Return *line*, or the template if it is empty, with *values*; columns stay where they are."""
        match = self.expression.fullmatch(line)
        spans = [match.span(number) for number in range(1, len(self.fields) + 1)] if match else []
        spans = spans or [field.span() for field in _FIELD.finditer(self.template)]
        text, at, moved = "", 0, 0
        line = line or self.template
        for field, (begin, end) in zip(self.fields, spans, strict=True):
            text += _spaced(line[at:begin], moved)
            old = line[begin:end]
            usual = 2 if field.whole else 0
            decimals = len(old.rstrip("%").partition(".")[2]) if match else usual
            number = field.text(values, decimals)
            gap = re.search(" {2,}", line[at:begin])
            moved = (0 if gap else moved) + len(number) - len(old)
            text, at = text + number, end
        return text + _spaced(line[at:], moved)


def _spaced(text: str, moved: int) -> str:
    """Return *text* with its first gap of several spaces reduced by *moved* characters."""
    return re.sub(" {2,}", lambda gap: " " * max(1, len(gap[0]) - moved), text, count=1)


class SummaryTable(FileTable, frozen=True):
    """The table ``[summary]`` of an aligner's file; docs/reference/data-files.md describes the keys."""

    of: Word = ""
    layouts: Words = ()
    always: bool = False
    largest: Words = ()
    apart: Annotated[tuple[Regex, ...], Meta(min_length=1)] = ()


class AlignerSummary(Struct, frozen=True):
    """The summary that a table describes.

    *layouts* are the lines of each layout, each in its forms.
    """

    layouts: tuple[tuple[tuple[_Form, ...], ...], ...] = ()
    always: bool = False
    largest: frozenset[str] = frozenset()
    apart: tuple[re.Pattern[str], ...] = ()

    def has(self, line: str) -> bool:
        """Return whether *line* looks like a line of a summary."""
        forms = (form for lines in self.layouts for forms in lines for form in forms)
        return any(form.expression.fullmatch(line) for form in forms)


def summary(table: SummaryTable) -> AlignerSummary:
    """Return the content of the table ``[summary]``; raises ValueError for a template that is wrong."""
    layouts = tuple(
        tuple(tuple(map(_form, line.split(_OR))) for line in text.splitlines()) for text in table.layouts
    )
    counts = {name for lines in layouts for forms in lines for form in forms for name in form.counts}
    for form in (form for lines in layouts for forms in lines for form in forms):
        used = {name for field in form.fields for _, name in (*field.part, *field.whole)}
        if lacking := sorted(used - counts):
            raise ValueError(f"layouts: '{form.template}': {lacking[0]} is not a count of any line")
    if lacking := sorted({*table.largest} - counts):
        raise ValueError(f"largest: {lacking[0]} is not a count of any line")
    return AlignerSummary(layouts, table.always, frozenset(table.largest), tuple(map(re.compile, table.apart)))


def mistake(table: SummaryTable) -> tuple[str, str] | None:
    """Return key and reason of a value of the right type that cannot work."""
    try:
        summary(table)
    except ValueError as error:
        key, _, reason = str(error).partition(": ")
        return key, reason
    return None


def _form(template: str) -> _Form:
    at = len(template) - len(template.lstrip(" "))
    expression, fields = " " * at, []
    for match in _FIELD.finditer(template):
        part, whole = (_terms(text, template) for text in (match[1], match[2] or ""))
        if not whole and (len(part) > 1 or part[0][0] != 1):
            raise ValueError(f"layouts: '{template}': {match[0]} is not a count, and no percentage")
        number = r"(\d[\d,]*)" if match[3] else r"(\d+(?:\.\d+)?%)" if whole else r"(\d+(?:\.\d+)?)"
        expression += _literal(template[at : match.start()]) + number
        fields.append(_Field(part, whole, bool(match[3])))
        at = match.end()
    if strange := re.search(r"\{[^}]*\}", _FIELD.sub("", template)):
        raise ValueError(f"layouts: '{template}': {strange[0]} is not a count or a percentage")
    return _Form(template, re.compile(expression + _literal(template[at:])), tuple(fields))


def _terms(text: str, template: str) -> tuple[tuple[int, str], ...]:
    terms = [_TERM.fullmatch(term) for term in text.split("+")] if text else []
    if None in terms:
        raise ValueError(f"layouts: '{template}': '{text}' is not a sum of counts")
    return tuple((int(term[1] or 1), term[2]) for term in terms if term)


def _literal(text: str) -> str:
    """Return the regular expression of *text*, in which a gap between columns may have any width."""
    return re.sub(r"(\\ ){2,}", " +", re.escape(text))


# ----------------------------------------------------------------------
# The summary of one instance


class _InstanceSummary(Struct):
    """A summary as an instance printed it: its numbers as *values*, its *lines* by number of line and form."""

    layout: int
    values: dict[str, Decimal]
    lines: dict[tuple[int, int], str]


def _read(block: Sequence[str], description: AlignerSummary) -> _InstanceSummary | None:
    """Return the summary in the lines *block*; None if they are not a complete summary of a known layout."""
    for layout, lines in enumerate(description.layouts):
        summary = _InstanceSummary(layout, {}, {})
        number = -1
        for text in block:
            number = _take(text, lines, number + 1, summary)
        # Another version may count something else under these names, so the counts must reproduce the text.
        if number == len(lines) - 1 and _written([summary], summary.values, lines) == list(block):
            return summary
    return None


def _take(text: str, lines: Sequence[Sequence[_Form]], begin: int, summary: _InstanceSummary) -> int:
    """Add *text* to *summary*, and return the number of its line, *begin* or later; past the last if unknown."""
    for number in range(begin, len(lines)):
        for form, each in enumerate(lines[number]):
            if match := each.expression.fullmatch(text):
                summary.lines[number, form] = text
                for field, written in zip(each.fields, match.groups(), strict=True):
                    if field.name:
                        summary.values[field.name] = Decimal(written.replace(",", ""))
                return number
    return len(lines)


def _written(summaries: Sequence[_InstanceSummary], values: Values, lines: Sequence[Sequence[_Form]]) -> list[str]:
    """Return the summary that has *values*, and each line that one of *summaries* has."""
    written = []
    for number, forms in enumerate(lines):
        printed = {
            form: summary.lines[number, form]
            for summary in reversed(summaries)
            for form in range(len(forms))
            if (number, form) in summary.lines
        }
        if printed:
            # A form that lacks one of the counts is printed only where this count is 0.
            counts = {name for form in forms for name in form.counts if values.get(name)}
            candidates = [form for form in (*sorted(printed), *range(len(forms))) if counts <= forms[form].counts]
            form = candidates[0] if candidates else len(forms) - 1
            written.append(forms[form].text(printed.get(form, ""), values))
    return written


# ----------------------------------------------------------------------
# The messages of all instances


class _Log(Struct):
    """The log *file* of instance *number*: its *summary*, and how often each of its first distinct lines occurs.

    *is_unclear*: it has lines of an incomplete summary, of another version's, or of several summaries.
    """

    number: int
    file: Path
    lines: collections.Counter[str]
    command: tuple[str, str]  # the instance's, and the user's in its place
    summary: _InstanceSummary | None = None
    is_unclear: bool = False

    @classmethod
    def read(cls, number: int, file: Path, description: AlignerSummary, command: tuple[str, str]) -> _Log:
        """Read the log *file* of instance *number*."""
        log = cls(number, file, collections.Counter(), command)
        block: list[str] = []
        for text, kind in log.parts(description):
            if kind == "summary":
                block.append(text)
                continue
            log._end(block, description)
            block = []
            if kind == "common" and (text in log.lines or len(log.lines) < _MOST_COMPARED):
                log.lines[text] += 1
        log._end(block, description)
        return log

    def parts(self, description: AlignerSummary) -> Iterator[tuple[str, str]]:
        """Yield each line with its kind: "summary", about this instance only ("apart"), or "common"."""
        kind = ""
        with self.file.open(encoding="utf-8", errors="replace", newline="\n") as stream:
            for line in stream:
                text = line.rstrip("\r\n").replace(*self.command)
                if kind != "apart":
                    is_apart = any(expression.search(text) for expression in description.apart)
                    kind = "summary" if description.has(text) else "apart" if is_apart else "common"
                yield text, kind

    def _end(self, block: Sequence[str], description: AlignerSummary) -> None:
        """Read the summary whose lines are in *block*, if there are any."""
        if block:
            summary = _read(block, description)
            self.is_unclear = self.is_unclear or summary is None or self.summary is not None
            self.summary = summary


class Messages:
    """Passes the messages of an aligner's *instances* to *write*, in the order of the instances.

    A line that several instances print is written once, and a line about one instance with its number. The
    messages of a single instance are written as they are. Each of *commands*, by instance, is written as *typed*.
    """

    def __init__(self, description: AlignerSummary, instances: int, write: Callable[[str], object]) -> None:
        self.typed, self.commands = "", dict[int, str]()
        self._description, self._write = description, write
        self.is_joined = instances > 1
        self._summaries: list[_InstanceSummary] = []
        #: Whether a summary may not have been understood, or not every instance has one.
        self.is_unclear = False

    def add(self, files: Mapping[int, Path], *, failed: bool) -> None:
        """Write the messages in the log *files*, by number of the instance. The run may have *failed*."""
        if failed:
            for number, file in files.items():
                for line in end_of_log(file).splitlines():
                    self._write(f"instance {number}: {line}\n" if self.is_joined else f"{line}\n")
            return
        commands = {number: (self.commands.get(number, self.typed), self.typed) for number in files}
        logs = [_Log.read(number, file, self._description, commands[number]) for number, file in files.items()]
        summaries = [log.summary for log in logs if log.summary]
        is_usual = self._description.always or bool(summaries)
        lacking = is_usual and len(summaries) < len(logs)
        is_unclear = any(log.is_unclear for log in logs)
        if self.is_joined:
            has_left_out = self._join(logs, only_equal=lacking or is_unclear)
            is_unclear = is_unclear or has_left_out or (lacking and bool(summaries))
        else:
            for log in logs:
                for text, _ in log.parts(self._description):
                    self._write(f"{text}\n")
        self._summaries = summaries
        self.is_unclear = is_unclear or len({summary.layout for summary in summaries}) > 1

    def _join(self, logs: Sequence[_Log], *, only_equal: bool) -> bool:
        """Write all lines of *logs* except summaries, each as often as in the instance that has it most often.

        *only_equal* omits lines that not all instances have, which may be the summary of another version. Return
        whether any were omitted.
        """
        written = collections.Counter[str]()
        equal = logs[0].lines.copy() if logs else written
        for log in logs:
            equal &= log.lines
        has_left_out = False
        for log in logs:
            count = collections.Counter[str]()
            for text, kind in log.parts(self._description):
                count[text] += text in log.lines
                if kind == "apart":
                    self._write(f"instance {log.number}: {text}\n")
                elif kind == "summary" or (count[text] and count[text] <= written[text]):
                    continue
                elif only_equal and (not count[text] or count[text] > equal[text]):
                    has_left_out = True
                else:
                    written[text] = count[text]
                    self._write(f"{text}\n")
        return has_left_out

    @property
    def summary(self) -> str:
        """The summary of the whole run; empty if no instance printed one, or if it is unclear."""
        if self.is_unclear or not self._summaries:
            return ""
        values = {}
        for name in {name for summary in self._summaries for name in summary.values}:
            numbers = [summary.values.get(name, Decimal()) for summary in self._summaries]
            values[name] = max(numbers) if name in self._description.largest else sum(numbers, Decimal())
        lines = self._description.layouts[self._summaries[0].layout]
        return "".join(f"{line}\n" for line in _written(self._summaries, values, lines))
