# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: F403, F405
"""python-isal in a newer release than Spack has, with the ISA-L that it brings along."""

from spack.package import *
from spack_repo.builtin.build_systems.python import PythonPackage


class PyIsal(PythonPackage):
    """Faster zlib and gzip by Python bindings for the ISA-L library."""

    homepage = "https://github.com/pycompression/python-isal"
    pypi = "isal/isal-1.9.1.tar.gz"

    maintainers("firsttouch-developers")
    license("PSF-2.0")

    version("1.9.1", sha256="d210dca02a689ef2af709d2c62d2daac2e36b5d2fa06e6dc0d023c83fee77e91")

    depends_on("c", type="build")
    depends_on("gmake", type="build")
    depends_on("nasm", type="build", when="target=x86_64:")
    depends_on("python@3.9:", type=("build", "run"))
    depends_on("py-setuptools@77:", type="build")
    depends_on("py-setuptools-scm@8:", type="build")
