# SPDX-License-Identifier: Apache-2.0
"""Quantities with units: parse "16 GiB", and format 17179869184 as "16 GiB".

GB is 1e9 bytes and GiB is 2^30 bytes everywhere. Verdicts, pages and tickets state values with these functions, so
that a value has the same digits in all of them.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Literal

from firsttouch.errors import BadInput

#: unit -> (dimension, factor to the dimension's base unit). Base units: B, B/s, s, T/s, Hz, reads/s,
#: records/s, J.
UNITS: dict[str, tuple[str, float]] = {
    **{f"{p}B": ("bytes", 1000.0**i) for i, p in enumerate(("", "k", "M", "G", "T"))},
    **{f"{p}iB": ("bytes", 1024.0**i) for i, p in enumerate(("", "K", "M", "G", "T")) if p},
    **{f"{p}B/s": ("bytes per second", 1000.0**i) for i, p in enumerate(("", "k", "M", "G", "T"))},
    "ns": ("seconds", 1e-9),
    "us": ("seconds", 1e-6),
    "ms": ("seconds", 1e-3),
    "s": ("seconds", 1.0),
    "min": ("seconds", 60.0),
    "h": ("seconds", 3600.0),
    "d": ("seconds", 86400.0),
    "MT/s": ("transfers per second", 1e6),
    "GT/s": ("transfers per second", 1e9),
    **{f"{p}FLOP/s": ("operations per second", 1000.0**i) for i, p in enumerate(("", "k", "M", "G", "T"))},
    "MHz": ("hertz", 1e6),
    "GHz": ("hertz", 1e9),
    **{f"{p}reads/s": ("reads per second", 1000.0**i) for i, p in enumerate(("", "k", "M", "G"))},
    **{f"{p}records/s": ("records per second", 1000.0**i) for i, p in enumerate(("", "k", "M", "G"))},
    **{f"{p}J": ("joules", 1000.0**i) for i, p in enumerate(("", "k", "M"))},
}
_PERCENT = r"([+-]?[0-9]+(?:\.[0-9]+)?) ?%\Z"
_QUANTITY = r"\s*([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z/]+)\s*\Z"


#: The direction of a metric: whether lower or higher values are better.
Better = Literal["higher", "lower", "neither"]


def better(unit: str) -> Literal["higher", "lower"]:
    """Return whether higher or lower values in *unit* are usually better: lower ones for times and energies."""
    return "lower" if UNITS.get(unit, ("",))[0] in {"seconds", "joules"} else "higher"


def parse(text: str, dimension: str) -> float:
    """Return *text*, such as ``16 GiB``, in the base unit of *dimension* (see :data:`UNITS`).

    A number without a unit is in bytes, and ``16G`` and ``16Gi`` stand for ``16GB`` and ``16GiB``. Raises BadInput
    if number or unit are not of that dimension.
    """
    if dimension == "bytes" and text.strip().isdecimal():
        text = f"{text} B"
    match = re.match(_QUANTITY, text)
    unit = match[2] if match else ""
    if dimension == "bytes" and (short := f"{'k' if unit == 'K' else unit}B") in UNITS:
        unit = short
    if match is None or UNITS.get(unit, ("", 0.0))[0] != dimension or math.isinf(float(match[1]) * 1e15):
        units = ", ".join(u for u, (d, _) in UNITS.items() if d == dimension)
        raise BadInput(f"'{text}' is not a quantity of {dimension}: write a number and one of {units}")
    return float(match[1]) * UNITS[unit][1]


def parse_bytes(text: str) -> int:
    """Return a size such as ``5.1GB``, ``16Gi`` or ``4096`` (plain bytes) as a number of bytes."""
    return round(parse(text, "bytes"))


def parse_percent(text: str) -> float:
    """Return a share such as ``-10 %`` as a fraction (-0.1); raises BadInput for anything else."""
    match = re.match(_PERCENT, text)
    if match is None or abs(float(match[1])) > 1e6:
        raise BadInput(f"'{text}' is not a share such as \"5 %\"")
    return float(match[1]) / 100


def format_bytes(size: float) -> str:
    """Return *size* (bytes) with three digits, in the largest binary unit that does not exceed it."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        factor = UNITS[unit][1]
        if size >= factor:
            return f"{size / factor:.3g} {unit}" if size / factor < 999.5 else f"{size / factor:.0f} {unit}"
    return f"{size:.0f} B"


def number(value: float) -> str:
    """Return *value* with three significant digits: integers without a point, large values with an exponent."""
    if float(value).is_integer() and abs(value) < 1e6:
        return f"{value:.0f}"
    rounded = abs(float(f"{value:.3g}"))
    if not 1e-3 <= rounded < 1e6:
        return f"{value:.2e}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(rounded)))}f}"


def quantity(value: float, unit: str) -> str:
    """Return *value* with its unit; counts and ratios have the unit ``""`` or ``1``."""
    return number(value) if unit in {"", "1"} else f"{number(value)} {unit}"


def percent(fraction: float) -> str:
    """Return a fraction in percent."""
    return f"{100 * fraction:.1f} %"


def signed_percent(change: float) -> str:
    """Return a relative change in percent, with its sign."""
    text = f"{100 * change:+.1f} %"
    return text[1:] if text[1:] == percent(0) else text


def iso(milliseconds: int) -> str:
    """Return a time (ms since 1970) in ISO 8601 (UTC)."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds")


def day(milliseconds: int) -> str:
    """Return the day (UTC) of a time (ms since 1970)."""
    return iso(milliseconds)[:10]


def text_range(low: str, high: str) -> str:
    """Return ``LOW to HIGH``, or one of them if they are equal."""
    return low if low == high else f"{low} to {high}"
