# SPDX-License-Identifier: Apache-2.0
"""Step 3: bandwidth of every PU-set x bank (thesis section 3.4, algorithm 1, figures 3.2 to 3.5)."""

import reframe as rfm
from reframe.core.builtins import parameter, run_after, variable

from firsttouch.checks import cases
from firsttouch.checks.base import FirstTouchCheck
from firsttouch.measure import likwid


@rfm.simple_test
class bandwidth(FirstTouchCheck):  # noqa: N801
    """copy, scale, add and triad of one PU-set to every bank: a row of the matrix.

    ``-S bandwidth.largest_set=1`` leaves out the PU-sets of several NUMA nodes (98 of 107 on the Opteron).
    """

    pu_set = parameter(cases.pu_sets(), fmt=lambda nodes: "_".join(map(str, nodes)))
    largest_set = variable(int, value=1_000_000)

    @run_after("init")
    def set_command(self):
        self.descr = f"bandwidth of the PUs of NUMA nodes {', '.join(map(str, self.pu_set))}"
        self.skip_if(len(self.pu_set) > self.largest_set, f"PU-sets of up to {self.largest_set} are asked for")
        self.command = ["measure", "bandwidth", "--pu-nodes", ",".join(map(str, self.pu_set))]
        banks = cases.banks(*self.pu_set)
        self.command += ["--banks", ",".join(map(str, banks))]
        # Those that likwid brings at least: it needs gcc on the host for our own kernels, scale and add.
        self.least_records = len(set(cases.effort().kernels) - likwid.OWN) * len(banks)

    def labels(self, record):
        """One variable per program, kernel and bank."""
        p = record.parameters
        return f"{p['program'].replace('-', '_')}_{p['kernel']}_bank{p['bank']}"
