# SPDX-License-Identifier: Apache-2.0
"""The aspects of a host, a module each.

A module states the check in whose section it appears, ``CHECK``. Its ``aspect(view)`` takes the records of a host
(:class:`firsttouch.report.model.HostView`) and returns their results, charts and tables, or the reason for their
absence. :func:`check_modules` finds the modules, so no list is needed; a module whose check is not in the
catalogue is reported on standard error. Shared code of aspects is in :mod:`firsttouch.report.aspect`;
:mod:`firsttouch.report.render` shows them.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType

from firsttouch.errors import did_you_mean, one_line
from firsttouch.records.catalogue import checks
from firsttouch.report.aspect import Aspect, tabulate_check
from firsttouch.report.model import HostView

#: The aspects of a host by check, in the order of the catalogue.
Aspects = Mapping[str, Sequence[Aspect]]


def host_aspects(view: HostView) -> Aspects:
    """Return the aspects of a host; a check without a module may have tables."""
    return {
        check: [module.aspect(view) for module in check_modules(check)]
        or ([tabulate_check(view, check, entry)] if entry.tables else [])
        for check, entry in checks().items()
    }


def check_modules(check: str) -> list[ModuleType]:
    """Return the modules of the aspects of a check, the one with the check's name first."""
    return sorted(_by_check().get(check, []), key=lambda module: (_name(module) != check, _name(module)))


@functools.cache
def _by_check() -> dict[str, list[ModuleType]]:
    modules: dict[str, list[ModuleType]] = {}
    for entry in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{entry.name}")
        if not hasattr(module, "CHECK"):
            continue
        if module.CHECK in checks():
            modules.setdefault(module.CHECK, []).append(module)
        else:
            reason = f"no metrics.toml has its check '{module.CHECK}'{did_you_mean(module.CHECK, checks())}"
            print(one_line(f"firsttouch: {module.__file__} is not shown in reports: {reason}"), file=sys.stderr)
    return modules


def _name(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2]
