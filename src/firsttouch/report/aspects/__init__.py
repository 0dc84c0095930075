# SPDX-License-Identifier: Apache-2.0
"""The aspects of a host, a module each, with the name of its check.

Its ``aspect(view)`` takes the records of a host (:class:`firsttouch.report.model.HostView`) and returns their
results, charts and tables, or the reason for their
absence. Shared code of aspects is in
:mod:`firsttouch.report.aspect`; :mod:`firsttouch.report.render` shows them.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping

from firsttouch.records.catalogue import checks
from firsttouch.report.aspect import Aspect, tabulate_check
from firsttouch.report.model import HostView

#: The aspects of a host by check, in the order of the catalogue.
Aspects = Mapping[str, Aspect]


def host_aspects(view: HostView) -> Aspects:
    """Return the aspects of a host; a check without a module may have tables."""
    shown = {}
    for check, entry in checks().items():
        if check.isidentifier() and importlib.util.find_spec(f"{__name__}.{check}"):
            shown[check] = importlib.import_module(f"{__name__}.{check}").aspect(view)
        elif entry.tables:
            shown[check] = tabulate_check(view, check, entry)
    return shown
