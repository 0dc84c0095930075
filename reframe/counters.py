# SPDX-License-Identifier: Apache-2.0
"""Counters of the default run and of its policies (thesis section 2.5.2)."""

import reframe as rfm
from reframe.core.builtins import parameter, run_after

from firsttouch.benchmarks.cases import cases
from firsttouch.benchmarks.checks import ScenarioCheck


@rfm.simple_test
class counters(ScenarioCheck):  # noqa: N801
    """Context switches, migrations, page faults and hardware events of one instance on all PUs."""

    tags = {"counters", "placement"}
    scenario = parameter(
        s for s in cases().scenarios(single=True) if s.startswith(f"1x{len(cases().host.allowed_pus)}-")
    )
    repetitions = 1

    @run_after("setup")
    def count(self):
        self.executable_opts += ["--counters"]
        # The time and the three software events that every Linux kernel counts.
        self.least_records = 4

    def labels(self, record):
        """Leave out the time: counting makes the run slower."""
        return record.metric if record.metric != "alignment_time" else None
