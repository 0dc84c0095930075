# SPDX-License-Identifier: Apache-2.0
"""The figures of a report, one module per kind.

A module states the check in whose section its figures are, ``CHECK``. Its ``figures(view)`` takes the records of a
host (:class:`firsttouch.report.model.HostView`) and returns its figures, or the reason why there are none. It may
also have ``headlines(view)`` and ``tables(view)``. :func:`of_check` finds the modules, so that nothing lists them.

``drawing`` has what they share: axes, bars, lines and heat maps. ``svg`` writes the shapes and texts.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from types import ModuleType


def of_check(check: str) -> list[ModuleType]:
    """Return the modules of the figures of a check, first the one that has its name."""
    return sorted(_by_check().get(check, []), key=lambda module: (_name(module) != check, _name(module)))


@functools.cache
def _by_check() -> dict[str, list[ModuleType]]:
    modules: dict[str, list[ModuleType]] = {}
    for entry in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{entry.name}")
        if hasattr(module, "CHECK"):
            modules.setdefault(module.CHECK, []).append(module)
    return modules


def _name(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2]
