# SPDX-License-Identifier: Apache-2.0
"""Step 2: latency of every NUMA node to every bank, the whole curve (thesis section 3.3, figure 3.1)."""

import reframe as rfm
from reframe.core.builtins import parameter, run_after

from firsttouch.checks import cases
from firsttouch.checks.base import FirstTouchCheck


class LatencyCurve(FirstTouchCheck):
    """lat_mem_rd from one PU of a NUMA node to all banks."""

    pu_node = parameter(cases.pu_nodes())
    order = "random"

    @run_after("init")
    def set_command(self):
        banks = cases.banks(self.pu_node)
        self.descr = f"latency from NUMA node {self.pu_node} ({self.order} accesses)"
        self.command = ["measure", "latency", "--order", self.order, "--pu-nodes", str(self.pu_node)]
        self.command += ["--banks", ",".join(map(str, banks))]
        self.least_records = 20 * len(banks)

    def labels(self, record):
        """The log has the last point of each curve, the memory's latency; the records have all."""
        largest = max(r.parameters["size_bytes"] for r in self._records())
        at_end = record.parameters["size_bytes"] == largest
        return f"latency_bank{record.parameters['bank']}" if at_end else None


@rfm.simple_test
class latency(LatencyCurve):  # noqa: N801
    """Random accesses: the latency that a pointer chase sees; judged."""


@rfm.simple_test
class latency_sequential(LatencyCurve):  # noqa: N801
    """Accesses at a fixed stride, as in the thesis: prefetchers hide latency, so it is shown and not judged."""

    order = "sequential"
    repetitions = 1
