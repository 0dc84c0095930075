# SPDX-License-Identifier: Apache-2.0
"""Step 4: contention, 1 to all threads on one bank (thesis section 3.5, figures 3.6 and 3.7)."""

import reframe as rfm
from reframe.core.builtins import run_after

from firsttouch.benchmarks.cases import cases
from firsttouch.benchmarks.checks import FirstTouchCheck
from firsttouch.host.cpusets import format_list


class Contention(FirstTouchCheck):
    """Threads fill the NUMA nodes from the nearest to the farthest and use one bank."""

    @run_after("init")
    def set_command(self):
        threads = cases().contention_threads()
        self.descr = f"contention of {format_list(threads)} threads by {self.program}"
        self.command = ["measure", "contention", "--program", self.program, "--threads", format_list(threads)]
        self.command += ["--banks", format_list(self.banks())]
        self.least_records = 2 * len(threads) * len(self.banks())

    def labels(self, record):
        """Name the rate of one thread and of all, per bank, and per NUMA node if all threads are on one."""
        p = record.parameters
        few = f"_from{p['pu_nodes'][0]}" if len(p.get("pu_nodes", ())) == 1 else ""
        return f"{record.metric}_{p['threads']}threads{few}_bank{p['bank']}"


@rfm.simple_test
class contention(Contention):  # noqa: N801
    """Random accesses by the probe, every bank in turn."""

    program = "firsttouch-probe"

    def banks(self):
        return cases().banks(*cases().host.cpu_nodes)


@rfm.simple_test
class contention_likwid(Contention):  # noqa: N801
    """Sequential accesses by likwid-bench (copy), on one bank: a cross-check of the probe."""

    program = "likwid-bench"
    repetitions = 1  # of 20 iterations

    def banks(self):
        return cases().banks(cases().host.cpu_nodes[0])[:1]
