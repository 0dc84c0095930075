# SPDX-License-Identifier: Apache-2.0
"""Latency of memory while other PUs load it at rising rates: bandwidth-latency curves."""

import reframe as rfm
from reframe.core.builtins import run_after

from firsttouch.benchmarks.cases import cases
from firsttouch.benchmarks.checks import FirstTouchCheck

#: Records of a curve at least: latency and load of its first and its last point, and three of the whole curve.
LEAST_RECORDS = 7


@rfm.simple_test
class loaded_latency(FirstTouchCheck):  # noqa: N801
    """One PU follows a cycle on its bank while PUs of its NUMA node, or of others, load memory."""

    @run_after("init")
    def set_command(self):
        shares = cases().effort.read_shares
        self.descr = f"latency under load with {', '.join(f'{share:.0%}' for share in shares)} reads"
        self.command = ["measure", "loaded-latency"]
        loads = sum(len(cases().loads(node)) for node in cases().pu_nodes())
        self.least_records = LEAST_RECORDS * len(shares) * loads

    def labels(self, record):
        """Name the metrics of each curve; its points are in the records only."""
        p = record.parameters
        if "rate" in p:
            return None
        return (
            f"{record.metric}_from{p['pu_nodes'][0]}_bank{p['bank']}_{p['load']}_reads{100 * p['read_share']:.0f}"
        )
