# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: F403, F405
"""rapidgzip, which Spack does not have."""

from spack.package import *
from spack_repo.builtin.build_systems.python import PythonPackage


class PyRapidgzip(PythonPackage):
    """Parallel decompression of gzip files."""

    homepage = "https://github.com/mxmlnkn/rapidgzip"
    pypi = "rapidgzip/rapidgzip-0.16.1.tar.gz"

    maintainers("firsttouch-developers")
    license("MIT OR Apache-2.0")

    version("0.16.1", sha256="d24092495c1cccaa7d889801bc7d6f90745d247d6a09d06586f4858b10d6dddd")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("nasm", type="build", when="target=x86_64:")
    depends_on("python@3.6:", type=("build", "run"))
    depends_on("py-setuptools@61.2:73", type="build")
    depends_on("py-cython@3", type="build")
