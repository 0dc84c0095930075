# SPDX-License-Identifier: Apache-2.0
"""Step 3: bandwidth of every PU-set x bank (thesis section 3.4, algorithm 1, figures 3.2 to 3.5)."""

import reframe as rfm
from reframe.core.builtins import parameter, run_after, variable

from firsttouch.benchmarks import likwid
from firsttouch.benchmarks.cases import cases
from firsttouch.benchmarks.checks import FirstTouchCheck
from firsttouch.host.cpusets import format_list


@rfm.simple_test
class bandwidth(FirstTouchCheck):  # noqa: N801
    """STREAM's kernels by the probe: all PU-sets of ``set_size`` NUMA nodes x every bank, and interleaved.

    One NUMA node gives figures 3.2 and 3.3, two figure 3.4, four figure 3.5. ``-S bandwidth.largest_set=1`` omits
    the PU-sets of several NUMA nodes (98 of 107 on the Opteron).
    """

    tags = {"bandwidth", "production"}
    set_size = parameter(cases().set_sizes())
    largest_set = variable(int, value=1_000_000)

    @run_after("init")
    def set_command(self):
        self.descr = f"bandwidth of the PUs of {self.set_size} NUMA nodes"
        self.skip_if(self.set_size > self.largest_set, f"larger than bandwidth.largest_set={self.largest_set}")
        sets = [nodes for nodes in cases().pu_sets if len(nodes) == self.set_size]
        self.command = ["measure", "bandwidth", "--set-sizes", str(self.set_size)]
        self.command += ["--pu-nodes", format_list(node for nodes in sets for node in nodes)]
        self.command += cases().bank_options()
        # Placements with data on one bank; interleaved data give further records.
        placements = sum(len(cases().banks(*nodes)) for nodes in sets)
        self.least_records = len(cases().effort.kernels) * placements

    def labels(self, record):
        """Name a variable per kernel, NUMA node and bank. Larger PU-sets are in the records only."""
        p = record.parameters
        if self.set_size > 1 or "bank" not in p:
            return None
        return f"{p['kernel']}_from{p['pu_nodes'][0]}_bank{p['bank']}"


@rfm.simple_test
class bandwidth_others(FirstTouchCheck):  # noqa: N801
    """The same kernels by likwid-bench and STREAM, every NUMA node on its own bank: a cross-check of the probe."""

    tags = {"bandwidth", "cross-check"}
    program = parameter(["likwid-bench", "stream"])
    repetitions = 1  # of 20 iterations of likwid-bench, or of STREAM's ten

    @run_after("init")
    def set_command(self):
        self.descr = f"bandwidth of each NUMA node's own bank by {self.program}"
        self.command = ["measure", "bandwidth", "--program", self.program, "--set-sizes", "1"]
        self.command += ["--pu-nodes", format_list(cases().pu_nodes())]
        # likwid-bench has two of STREAM's kernels.
        kernels = set(cases().effort.kernels) & set(likwid.KERNELS)
        self.least_records = len(kernels) * len(cases().pu_nodes())

    def labels(self, record):
        """Name a variable per kernel and bank."""
        p = record.parameters
        return f"{p['kernel']}_from{p['pu_nodes'][0]}_bank{p['bank']}"
