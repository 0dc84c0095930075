# SPDX-License-Identifier: Apache-2.0
"""Counters of the default run and of its policies (thesis section 2.5.2)."""

import reframe as rfm
from reframe.core.builtins import parameter, run_after

from firsttouch.benchmarks import cases
from firsttouch.benchmarks.checks import ScenarioCheck


@rfm.simple_test
class counters(ScenarioCheck):  # noqa: N801
    """Context switches, migrations, page faults, and what the processor counts, of one instance on everything."""

    scenario = parameter(s for s in cases.scenarios(single=True) if "_" not in s.removeprefix("1Inst_"))
    repetitions = 1

    @run_after("setup")
    def count(self):
        self.executable_opts += ["--counters"]
        # The time and the three software events, which every kernel counts.
        self.least_records = 4

    def labels(self, record):
        """Leave the time out: that of a counted run is not the scenario's."""
        return record.metric if record.metric != "alignment_time" else None
