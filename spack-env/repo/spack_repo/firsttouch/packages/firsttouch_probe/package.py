# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: F403, F405
"""firsttouch's native probe from this checkout (spack-env/stack.py names it as the source)."""

from pathlib import Path

from spack.package import *
from spack_repo.builtin.build_systems.cmake import CMakePackage


class FirsttouchProbe(CMakePackage):
    """Measures latency, bandwidth and contention between all NUMA nodes in one process."""

    root_cmakelists_dir = "probe"

    maintainers("firsttouch-developers")
    license("Apache-2.0")

    version("1.0.0", git=Path(__file__).resolve().parents[6].as_uri())

    depends_on("c", type="build")
    depends_on("cmake@3.18:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("hwloc@2.1:")
