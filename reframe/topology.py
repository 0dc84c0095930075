# SPDX-License-Identifier: Apache-2.0
"""Step 1: topology and theoretical bandwidth (thesis section 3.2)."""

import reframe as rfm

from firsttouch.benchmarks.checks import FirstTouchCheck


@rfm.simple_test
class topology(FirstTouchCheck):  # noqa: N801
    """NUMA nodes, PUs, memory and theoretical bandwidth of the host."""

    repetitions = 1
    command = ["measure", "topology"]
    least_records = 3
    time_limit = "5m"
