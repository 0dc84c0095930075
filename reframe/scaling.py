# SPDX-License-Identifier: Apache-2.0
"""Step 5: one instance, threads x policy; and throughput with as many reads for each thread.

The first is of thesis section 5.2.1 (figures 5.4 to 5.7), the second of Langmead et al. 2018 (figures 3 to 5).
"""

import reframe as rfm
from reframe.core.builtins import parameter, run_after, variable

from firsttouch.benchmarks import cases
from firsttouch.benchmarks.checks import FirstTouchCheck, ScenarioCheck


@rfm.simple_test
class scaling(ScenarioCheck):  # noqa: N801
    """The time that one instance takes with some threads under one policy."""

    scenario = parameter(cases.scenarios(single=True))


@rfm.simple_test
class weak_scaling(FirstTouchCheck):  # noqa: N801
    """Reads per second of one process, and of several side by side that nobody binds, the index being loaded.

    ``-S weak_scaling.reads_per_thread=N`` says how many (pairs) each thread aligns.
    """

    aligner = parameter(cases.chosen_aligners())
    scenario = parameter(cases.weak_scaling())
    dataset = variable(str, value="lambda")
    reads_per_thread = variable(int, value=10_000)

    @run_after("init")
    def set_command(self):
        self.descr = (
            f"throughput of {self.aligner}, {self.scenario}, {self.reads_per_thread} reads for each thread"
        )
        self.command = ["run", self.scenario, "--aligner", self.aligner, "--dataset", self.dataset]
        self.command += ["--reads-per-thread", str(self.reads_per_thread)]
