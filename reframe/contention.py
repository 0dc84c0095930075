# SPDX-License-Identifier: Apache-2.0
"""Step 4: contention, 1 to all threads on one bank (thesis section 3.5, figures 3.6 and 3.7)."""

import reframe as rfm
from reframe.core.builtins import parameter, run_after

from firsttouch.checks import cases
from firsttouch.checks.base import FirstTouchCheck


@rfm.simple_test
class contention(FirstTouchCheck):  # noqa: N801
    """Threads fill the NUMA nodes from the nearest to the farthest; all use every bank in turn."""

    threads = parameter(cases.contention_threads())

    @run_after("init")
    def set_command(self):
        banks = cases.banks(*cases.cpu_nodes())
        self.descr = f"contention of {self.threads} threads"
        self.command = ["measure", "contention", "--threads", str(self.threads)]
        self.command += ["--banks", ",".join(map(str, banks))]
        self.least_records = 2 * len(banks)

    def labels(self, record):
        """The rate of one thread, and of all, per bank."""
        return f"{record.metric}_bank{record.parameters['bank']}"
