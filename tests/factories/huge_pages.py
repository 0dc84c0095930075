# SPDX-License-Identifier: Apache-2.0
"""Tests that need huge pages, of which the kernel may have none left: its memory is fragmented."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

VMSTAT = Path("/proc/vmstat")


@contextlib.contextmanager
def needed() -> Iterator[None]:
    """Skip a test that fails if the kernel, meanwhile, had no huge page where it was to give one; a decorator.

    The kernel counts these occasions on the whole host (admin-guide/mm/transhuge, "Monitoring usage").
    """
    before = _fallbacks()
    try:
        yield
    except AssertionError:
        if number := _fallbacks() - before:
            pytest.skip(f"NOT TESTED: {number} times the kernel had no huge page: its memory is fragmented")
        raise


def _fallbacks() -> int:
    counters = dict(line.split() for line in VMSTAT.read_text(encoding="ascii").splitlines())
    return sum(int(counters.get(name, 0)) for name in ("thp_fault_fallback", "thp_file_fallback"))
