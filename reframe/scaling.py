# SPDX-License-Identifier: Apache-2.0
"""Step 5: one instance, threads x policy; and throughput with a fixed number of reads per thread.

The first is thesis section 5.2.1 (figures 5.4 to 5.7), the second Langmead et al. 2018 (figures 3 to 5).
"""

import reframe as rfm
from reframe.core.builtins import parameter, run_after, variable

from firsttouch.benchmarks import profiles
from firsttouch.benchmarks.cases import cases
from firsttouch.benchmarks.checks import FirstTouchCheck, ScenarioCheck


@rfm.simple_test
class scaling(ScenarioCheck):  # noqa: N801
    """The time of one instance with a number of threads under a policy."""

    tags = {"scaling", "placement"}
    scenario = parameter(cases().scenarios(single=True))


# ReFrame warns of a parameter without values.
if cases().weak_scaling():

    @rfm.simple_test
    class weak_scaling(FirstTouchCheck):  # noqa: N801
        """Reads per second of one process and of several unbound processes, excluding the loading of the index.

        ``-S weak_scaling.reads_per_thread=N`` sets the number of reads (pairs) per thread;
        ``-S index_cache=STATE`` sets the state of the page cache before each run.
        """

        tags = {"scaling"}
        aligner = parameter(cases().aligners())
        scenario = parameter(cases().weak_scaling())
        dataset = variable(str, value="lambda")
        index_cache = variable(str, value=profiles.index_cache())
        reads_per_thread = variable(int, value=10_000)

        @run_after("init")
        def set_command(self):
            self.descr = f"throughput of {self.aligner}, {self.scenario}, {self.reads_per_thread} reads per thread"
            self.command = ["run", self.scenario, "--aligner", self.aligner, "--dataset", self.dataset]
            self.command += ["--reads-per-thread", str(self.reads_per_thread), "--index-cache", self.index_cache]
