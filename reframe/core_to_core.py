# SPDX-License-Identifier: Apache-2.0
"""Latency between pairs of PUs that change one cache line in turn, by what the two share."""

import reframe as rfm
from reframe.core.builtins import run_after

from firsttouch.benchmarks.cases import cases
from firsttouch.benchmarks.checks import FirstTouchCheck


@rfm.simple_test
class core_to_core(FirstTouchCheck):  # noqa: N801
    """Compare-and-swap by the probe, on the bank nearest to the first PU of each pair."""

    descr = "latency between pairs of PUs"
    command = ["measure", "core-to-core"]

    @run_after("init")
    def set_records(self):
        # At least one pair, and the figure of its kind.
        self.least_records = 2
        self.skip_if(len(cases().host.allowed_pus) < 2, "one PU has no other to exchange a line with")

    def labels(self, record):
        """Name a variable per kind of closeness. The pairs are in the records only."""
        p = record.parameters
        if record.metric != "transfer_latency":
            return None
        return f"transfer_{p['shared']}{p.get('cache_level', '')}"
