# SPDX-License-Identifier: Apache-2.0
"""Step 2: latency of every NUMA node to every bank, the whole curve (thesis section 3.3, figure 3.1)."""

import reframe as rfm
from reframe.core.builtins import parameter, run_after

from firsttouch.benchmarks import programs
from firsttouch.benchmarks.cases import cases
from firsttouch.benchmarks.checks import FirstTouchCheck
from firsttouch.host.cpusets import format_list

#: Minimum number of sizes in a curve.
LEAST_SIZES = 12


class LatencyCurve(FirstTouchCheck):
    """Curves of latency over size."""

    def labels(self, record):
        """Name the last point of each curve, the latency of memory. The other points are in the records only."""
        p = record.parameters
        largest = max(r.parameters["size_bytes"] for r in self._records())
        return f"latency_from{p['pu_nodes'][0]}_bank{p['bank']}" if p["size_bytes"] == largest else None


@rfm.simple_test
class latency(LatencyCurve):  # noqa: N801
    """A random cycle by the probe, from one PU of a NUMA node to all banks: a row of the matrix."""

    tags = {"latency", "production"}
    pu_node = parameter(cases().pu_nodes())

    @run_after("init")
    def set_command(self):
        banks = cases().banks(self.pu_node)
        self.descr = f"latency from NUMA node {self.pu_node}"
        self.command = ["measure", "latency", "--pu-nodes", str(self.pu_node), "--banks", format_list(banks)]
        self.least_records = LEAST_SIZES * len(banks)


@rfm.simple_test
class latency_lmbench(LatencyCurve):  # noqa: N801
    """Random accesses by lmbench, every NUMA node to its own bank: a cross-check of the probe."""

    tags = {"latency", "cross-check"}
    repetitions = 1

    @run_after("init")
    def set_command(self):
        self.descr = "latency of each NUMA node's own bank by lmbench"
        self.command = ["measure", "latency", "--program", "lmbench"]
        self.command += ["--pu-nodes", format_list(cases().pu_nodes())]
        self.least_records = LEAST_SIZES * len(cases().pu_nodes())


@rfm.simple_test
class latency_sequential(LatencyCurve):  # noqa: N801
    """Accesses line by line by the probe (figure 3.1). Prefetchers hide latency, so it is not judged."""

    tags = {"latency"}

    @run_after("init")
    def set_command(self):
        node = cases().pu_nodes()[0]
        self.descr = f"latency from NUMA node {node} to its nearest bank (sequential accesses)"
        self.command = ["measure", "latency", "--order", "sequential", "--pu-nodes", str(node)]
        self.command += ["--banks", str(programs.nearest(cases().host, [node]))]
        self.least_records = LEAST_SIZES
