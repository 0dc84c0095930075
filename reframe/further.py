# SPDX-License-Identifier: Apache-2.0
"""The aspects without a file of their own here."""

import re
from pathlib import Path

import reframe as rfm
from reframe.core.builtins import parameter, run_after

from firsttouch.benchmarks import measure
from firsttouch.benchmarks.checks import FirstTouchCheck
from firsttouch.records.cases import Case

ASPECTS = [
    name for name in measure.aspects() if not Path(__file__).with_name(f"{name.replace('-', '_')}.py").exists()
]

# ReFrame warns of a parameter without values.
if ASPECTS:

    @rfm.simple_test
    class further(FirstTouchCheck):  # noqa: N801
        """An aspect as ``firsttouch measure`` measures it by default."""

        aspect = parameter(ASPECTS)

        @run_after("init")
        def set_command(self):
            self.descr = f"aspect {self.aspect}"
            self.command = ["measure", self.aspect]

        def labels(self, record):
            """Name a variable per case."""
            return re.sub(r"\W+", "_", Case.of(record).name)
