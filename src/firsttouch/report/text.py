# SPDX-License-Identifier: Apache-2.0
"""Numbers and names as a person reads them, and names that are safe in every format of the report."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from firsttouch.host.cpusets import format_list

# What neither XML nor a terminal may carry: control characters (a tab and a newline become spaces), lone
# surrogates (a name that was no UTF-8) and the two non-characters of XML 1.0.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_BLANKS = re.compile(r"[\t\n\r]+")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#~&])")


def clean(text: str) -> str:
    """Return *text* on one line, without characters that XML or a terminal must not carry."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", _BLANKS.sub(" ", text))


def markdown(text: str) -> str:
    """Return *text* such that Markdown (and the HTML in it) shows it literally, also in a table's cell."""
    return _MARKDOWN.sub(r"\\\1", clean(text))


def number(value: float) -> str:
    """Return *value* with three significant digits, without exponent from 0.001 up to a million."""
    size = abs(value)
    if size >= 1e6 or 0 < size < 1e-3:
        return f"{value:.2e}"
    if float(value).is_integer() and size < 1e5:
        return f"{value:.0f}"
    # The limits are where rounding would give one digit more: 9.996 is 10.0, not 10.00.
    digits = 0 if size >= 99.95 else 1 if size >= 9.995 else 2 if size >= 0.9995 else 3
    return f"{value:.{digits}f}"


def quantity(value: float, unit: str) -> str:
    """Return *value* with its unit; a metric without unit (a count, a ratio) has the unit ``""`` or ``1``."""
    return number(value) if unit in {"", "1"} else f"{number(value)} {unit}"


def percent(fraction: float) -> str:
    """Return a fraction, such as a spread, in percent."""
    return f"{100 * fraction:.1f} %"


def times(factor: float) -> str:
    """Return a factor such as a speedup, with two decimals below 10."""
    return f"{factor:.2f}x" if factor < 9.995 else f"{number(factor)}x"


def listed(names: Iterable[str], *, most: int = 6) -> str:
    """Return names for a sentence: ``a, b and c``; beyond *most* the rest is counted."""
    known = list(names)
    if len(known) > most:
        return ", ".join(known[:most]) + f" and {len(known) - most} more"
    return " and ".join(filter(None, (", ".join(known[:-1]), *known[-1:])))


def count(how_many: int, noun: str) -> str:
    """Return ``1 record``, ``2 records``."""
    return f"{how_many} {noun}{'' if how_many == 1 else 's'}"


def span(values: Iterable[float]) -> str:
    """Return ``5`` for equal values (counts), else ``3 to 10``."""
    known = sorted(set(values))
    if not known:
        return "none"
    low, high = number(known[0]), number(known[-1])
    return low if low == high else f"{low} to {high}"


def nodes(numbers: Sequence[int]) -> str:
    """Return ``NUMA node 0`` or ``NUMA nodes 0-3``."""
    return f"NUMA node{'' if len(numbers) == 1 else 's'} {format_list(numbers)}"


def plain(value: Any) -> str:
    """Return a parameter's value: lists of numbers as ranges (``0-3,8``), mappings as ``key: value``."""
    if isinstance(value, Mapping):
        return "; ".join(f"{k}: {plain(v)}" for k, v in value.items())
    if isinstance(value, (list, tuple, frozenset, set)):
        items = list(value)
        if items and all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in items):
            return format_list(items)
        return ", ".join(plain(i) for i in items)
    if isinstance(value, float):
        return number(value)
    return "" if value is None else str(value)


def case(parameters: Mapping[str, Any]) -> str:
    """Return the parameters of a record as one line, words without their underscores."""
    parts = ((key.replace("_", " "), plain(value)) for key, value in parameters.items())
    return clean(", ".join(f"{key} {value}" for key, value in parts if value))
