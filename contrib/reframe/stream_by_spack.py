# SPDX-License-Identifier: Apache-2.0
"""STREAM, built by ReFrame's build system ``Spack`` from this project's recipe, on all cores of a host.

``spack`` is on PATH. The environment and its lock stay with the output of the run:

    reframe -c contrib/reframe/stream_by_spack.py -r --system local
    reframe -C site.py -c contrib/reframe/stream_by_spack.py -r -S array_size=400000000
"""

from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import run_before, sanity_function, variable

RECIPES = Path(__file__).resolve().parents[2] / "spack-env" / "repo" / "spack_repo" / "firsttouch"
#: ReFrame's name of the environment that it creates.
ENVIRONMENT = "rfm_spack_env"


@rfm.simple_test
class stream_by_spack(rfm.RegressionTest):  # noqa: N801
    """STREAM's four kernels. Arrays of four times all last-level caches leave none of them in a cache."""

    descr = "STREAM built by Spack"
    maintainers = ["firsttouch developers"]
    tags = {"bandwidth", "spack"}
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    build_system = "Spack"
    build_locally = False
    exclusive_access = True
    executable = f"{ENVIRONMENT}/.spack-env/view/bin/stream"
    keep_files = [f"{ENVIRONMENT}/spack.yaml", f"{ENVIRONMENT}/spack.lock"]
    #: Elements per array.
    array_size = variable(int, value=80_000_000)

    @run_before("compile")
    def set_spec(self):
        """Take the pinned STREAM of this project, not Spack's."""
        # ReFrame adds `specs` before these commands, when Spack does not know the recipe yet.
        spec = f"firsttouch.stream@5.10+openmp stream_array_size={self.array_size}"
        spack = f"spack -e {ENVIRONMENT}"
        self.build_system.preinstall_cmds = [f"{spack} repo add {RECIPES}", f"{spack} add {spec}"]

    @run_before("run")
    def use_all_cores(self):
        """Bind each thread to a core."""
        self.env_vars |= {"OMP_PROC_BIND": "close", "OMP_PLACES": "cores"}

    @sanity_function
    def results_are_right(self):
        """Check STREAM's own comparison of its results."""
        return sn.assert_found("Solution Validates", self.stdout)

    @run_before("performance")
    def set_rates(self):
        """Take the best rate of each kernel."""
        for kernel in ("Copy", "Scale", "Add", "Triad"):
            rate = sn.extractsingle(rf"^{kernel}:\s+(\S+)", self.stdout, 1, float)
            self.perf_variables[kernel.lower()] = sn.make_performance_function(rate, "MB/s")
