# SPDX-License-Identifier: Apache-2.0
"""Numbers and names for readers, and names that are safe in every format of the report."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from firsttouch.errors import first_of, without_commands
from firsttouch.host.cpusets import format_list
from firsttouch.units import number, text_range

#: Verdict -> the sign next to its colour, for readers who do not see colours, and on paper.
SIGNS: Mapping[str, str] = {
    "pass": "\N{CHECK MARK}",
    "undecided": "?",
    "suspect": "!",
    "invalid": "\N{CIRCLED DIVISION SLASH}",
    "fail": "\N{MULTIPLICATION X}",
}
#: The sign of a value that was not measured.
NOT_MEASURED = "-"

# Characters that are invalid in XML or unsafe on a terminal: control characters (tabs and newlines become spaces),
# lone surrogates (from names that are not UTF-8) and the two non-characters of XML 1.0.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_BLANKS = re.compile(r"[\t\n\r]+")
# Characters that are not escaped in an address.
_NOT_IN_ADDRESS = re.compile(r"[^A-Za-z0-9._]+")
# An underscore within a word, as in copy_bandwidth, is not markup.
_MARKDOWN = re.compile(r"([\\`*{}\[\]<>|#~&]|(?<![^\W_])_|_(?![^\W_]))")


@functools.lru_cache(maxsize=1 << 14)  # a large fleet has the same names in each row
def clean(text: str) -> str:
    """Return *text* on one line, without characters invalid in XML or unsafe on a terminal or in a CI log."""
    return without_commands(_UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", _BLANKS.sub(" ", text)))


def markdown(text: str) -> str:
    """Return *text* escaped so that Markdown (and HTML in it) shows it literally, even in a table."""
    return _MARKDOWN.sub(r"\\\1", clean(text))


def anchors(kind: str, names: Iterable[str], system: str = "") -> dict[str, str]:
    """Return the address in a page of each item of a *kind*, by name: ``host-cn07``, ``host-rome.cn07``.

    It depends on the name only, so a link in a ticket stays valid for later pages.
    """
    addresses: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        first = address = _NOT_IN_ADDRESS.sub("-", f"{kind}-{system}{'.' if system else ''}{name}")
        repeated = 1
        while address in taken:
            repeated += 1
            address = f"{first}-{repeated}"
        taken.add(address)
        addresses[name] = address
    return addresses


def times(factor: float) -> str:
    """Return a factor, such as a speed-up, with two decimals below 10."""
    return f"{factor:.2f}x" if factor < 9.995 else f"{number(factor)}x"


def list_names(names: Iterable[str], *, most: int = 6) -> str:
    """Return ``a, b and c``; names beyond *most* are only counted."""
    items = list(names)
    if len(items) > most:
        return first_of(items, most)
    return " and ".join(filter(None, (", ".join(items[:-1]), *items[-1:])))


def count(how_many: int, noun: str) -> str:
    """Return ``1 record``, ``2 records``."""
    return f"{how_many} {noun}{'' if how_many == 1 else 's'}"


def span(values: Iterable[float]) -> str:
    """Return ``5`` if all values are equal, else ``3 to 10``."""
    ordered = sorted(values)
    if not ordered:
        return "none"
    return text_range(number(ordered[0]), number(ordered[-1]))


def nodes(numbers: Sequence[int]) -> str:
    """Return ``NUMA node 0`` or ``NUMA nodes 0-3``."""
    return f"NUMA node{'' if len(numbers) == 1 else 's'} {format_list(numbers)}"


def plain(value: Any) -> str:
    """Return a parameter as text: lists of numbers as ranges (``0-3,8``), mappings as ``key: value``."""
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
    """Return the parameters of a record on one line, names without underscores; no number is rounded."""

    def exact(value: Any) -> str:
        rounded = plain(value)
        return repr(value) if isinstance(value, float) and float(rounded) != value else rounded

    parts = ((key.replace("_", " "), exact(value)) for key, value in parameters.items())
    return clean(", ".join(f"{key} {value}" for key, value in parts if value))
