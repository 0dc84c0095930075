# SPDX-License-Identifier: Apache-2.0
"""Latency and bandwidth by page size, every NUMA node on its own bank."""

import reframe as rfm
from reframe.core.builtins import run_after

from firsttouch.benchmarks.cases import cases
from firsttouch.benchmarks.checks import FirstTouchCheck
from firsttouch.host.cpusets import format_list


@rfm.simple_test
class pages(FirstTouchCheck):  # noqa: N801
    """Base, transparent huge and reserved huge pages by the probe, and whether prefetchers work."""

    descr = "latency and bandwidth by page size"

    @run_after("init")
    def set_command(self):
        nodes = cases().pu_nodes()
        self.command = ["measure", "pages", "--pu-nodes", format_list(nodes)]
        # Latency, the prefetch ratio and one rate with base pages; the host may not have others.
        self.least_records = 3 * len(nodes)

    def labels(self, record):
        """Name a variable per metric, page size and bank."""
        p = record.parameters
        size = f"_{p['pages']}" if "pages" in p and record.metric != "prefetch_ratio" else ""
        return f"{record.metric}{size}_bank{p['bank']}"
