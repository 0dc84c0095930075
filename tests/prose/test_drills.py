# SPDX-License-Identifier: Apache-2.0
"""Each metric that is judged has a drill: a fault that it shows, followed to the verdict."""

from __future__ import annotations

import sys

from documented import ROOT
from firsttouch.records.catalogue import checks

sys.path.append(str(ROOT / "tests" / "drills"))
from table import drills


def test_each_judged_metric_has_a_drill() -> None:
    judged = {f"{name}.{metric}" for name, check in checks().items() for metric in check.metrics}
    assert {shown for drill in drills().values() for shown in drill.shows} == judged


def test_drills_have_unique_names() -> None:
    from table import FLEETS, STORED  # noqa: PLC0415 - only here

    assert len(drills()) == len(STORED) + sum(len(fleet.drills) for fleet in FLEETS.values())
