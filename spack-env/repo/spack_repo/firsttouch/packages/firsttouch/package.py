# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: F403, F405
"""firsttouch from this checkout (spack-env/stack.py names it as the source)."""

from pathlib import Path

from spack.package import *
from spack_repo.builtin.build_systems.python import PythonPackage


class Firsttouch(PythonPackage):
    """Validates NUMA hosts and finds the placement that makes a memory-bound program fast.

    This is what measures, places and runs programs. What judges and reports (the extra "report" of pyproject.toml)
    runs on another host.
    """

    maintainers("firsttouch-developers")
    license("Apache-2.0")

    # The environment's `develop` section uses the checkout as it is. Without it, this version is the state in Git.
    version("1.0.0", git=Path(__file__).resolve().parents[6].as_uri())

    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-hatchling", type="build")
    with default_args(type=("build", "run")):
        depends_on("py-archspec@0.2:")
        depends_on("py-clustershell@1.9:")
        depends_on("py-isal@1.7:")
        depends_on("py-msgspec@0.20:")
        depends_on("py-numpy@1.26:")
        depends_on("py-pyyaml@6:")
        depends_on("py-requests@2.31:")
        depends_on("py-shtab@1.13:")
        depends_on("py-tabulate@0.9:")
        depends_on("py-urllib3@2:")
    depends_on("firsttouch-probe@1:", type="run")
    depends_on("numactl", type="run")

    @run_after("install")
    def state_origin(self):
        """Write the file by which firsttouch recognizes a view for this host and measuring interface."""
        mkdirp(self.prefix.share.firsttouch)
        python = self.spec["python"].command
        python.add_default_env("PYTHONPATH", f"{python_purelib}:{env.get('PYTHONPATH', '')}")
        words = (self.stage.source_path, self.prefix.share.firsttouch.join("origin.json"), str(self.spec.target))
        python("-m", "firsttouch.execution.build_info", *words)
