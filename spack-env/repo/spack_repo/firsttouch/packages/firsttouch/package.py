# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: F403, F405, D102
"""firsttouch itself with its probe, from this checkout (spack-env/stack.py names it as the source)."""

from pathlib import Path

from spack.package import *
from spack_repo.builtin.build_systems.generic import Package


class Firsttouch(Package):
    """Validates NUMA hosts and finds the placement that makes a memory-bound program fast."""

    # The environment's `develop` section uses the checkout as it is. Without it, this version is the state in Git.
    git = Path(__file__).resolve().parents[6].as_uri()

    license("Apache-2.0")

    version("0.1.0")

    depends_on("c", type="build")
    depends_on("cmake@3.18:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("hwloc@2.1:")
    depends_on("numactl", type="run")
    depends_on("python@3.11:", type=("build", "run"))

    def install(self, spec, prefix):
        script = join_path(self.stage.source_path, "containers", "install.sh")
        Executable("bash")(script, prefix, spec["python"].command.path, str(spec.target))
