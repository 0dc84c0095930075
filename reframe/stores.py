# SPDX-License-Identifier: Apache-2.0
"""Streaming and regular stores by instruction set, on the first NUMA node and its own bank."""

import reframe as rfm
from reframe.core.builtins import run_after

from firsttouch.benchmarks.cases import cases
from firsttouch.benchmarks.checks import FirstTouchCheck


@rfm.simple_test
class stores(FirstTouchCheck):  # noqa: N801
    """Copy and triad by the probe, in every instruction set of the processor."""

    @run_after("init")
    def set_command(self):
        node = cases().host.cpu_nodes[0]
        self.descr = f"stores of NUMA node {node} by instruction set"
        self.command = ["measure", "stores", "--pu-nodes", str(node)]

    def labels(self, record):
        """Name a variable per kernel, instruction set and kind of stores."""
        p = record.parameters
        if record.metric == "streaming_gain":
            return f"{p['kernel']}_streaming_gain"
        return f"{p['kernel']}_{p['instructions']}_{p['stores']}"
