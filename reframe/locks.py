# SPDX-License-Identifier: Apache-2.0
"""Records per second that threads take from one reader, by lock, way to parse, and records at once."""

import reframe as rfm
from reframe.core.builtins import run_after

from firsttouch.benchmarks.cases import cases
from firsttouch.benchmarks.checks import FirstTouchCheck

#: Cases without a batch: four locks with original, deferred and blocked parsing, and fetch-and-add with blocks.
CASES = 13
#: The locks whose batch sizes are compared.
LOCKS = 4


@rfm.simple_test
class locks(FirstTouchCheck):  # noqa: N801
    """Threads take FASTQ records from memory of the bank nearest to the first PU."""

    descr = "records per second from one reader under a lock"
    command = ["measure", "locks"]

    @run_after("init")
    def set_records(self):
        effort = cases().effort
        self.least_records = len(effort.lock_work) * (CASES + LOCKS * (len(effort.lock_batches)))

    def labels(self, record):
        """Name the rates with all PUs, and the batches. Other rates are in the records only."""
        p = record.parameters
        case = f"{p['lock']}_{p['parsing']}_work{p['work_ns']:g}ns"
        if record.metric == "lock_batch":
            return f"batch_{case}"
        if record.metric == "lock_records" and p["threads"] == len(cases().host.allowed_pus):
            return f"records_{case}_batch{p['batch']}"
        return None
