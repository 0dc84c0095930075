# SPDX-License-Identifier: Apache-2.0
"""The aspects of a host's memory: a test for each of those that its benchmark describes, and for all others."""

import re

import reframe as rfm
from reframe.core.builtins import parameter, run_after

from firsttouch.benchmarks import measure
from firsttouch.benchmarks.checks import FirstTouchCheck, aspect_tests
from firsttouch.records.cases import Case

for test in aspect_tests(__name__):
    rfm.simple_test(test)

#: The ones with a separate file here, and the ones that their benchmarks describe.
DESCRIBED = {"latency", "bandwidth"} | {name for name, aspect in measure.aspects().items() if aspect.tests}
OTHERS = [name for name in measure.aspects() if name not in DESCRIBED]

# ReFrame warns of a parameter without values.
if OTHERS:

    @rfm.simple_test
    class further(FirstTouchCheck):  # noqa: N801
        """An aspect as ``firsttouch measure`` measures it by default."""

        aspect = parameter(OTHERS)

        @run_after("init")
        def set_command(self):
            self.descr = f"aspect {self.aspect}"
            self.tags |= {self.aspect}
            self.command = ["measure", self.aspect]

        def labels(self, record):
            """Name a variable per case."""
            return re.sub(r"\W+", "_", Case.from_record(record).name)
