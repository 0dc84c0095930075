# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: F403, F405
"""msgspec, which Spack does not have."""

from spack.package import *
from spack_repo.builtin.build_systems.python import PythonPackage


class PyMsgspec(PythonPackage):
    """A fast serialization and validation library for JSON, MessagePack, YAML and TOML."""

    homepage = "https://jcristharif.com/msgspec/"
    pypi = "msgspec/msgspec-0.22.0.tar.gz"

    maintainers("firsttouch-developers")
    license("BSD-3-Clause")

    version("0.22.0", sha256="0a13624a4969159fe35d8c2a3d377b2b61bbd8585e327440d5e52725affcce38")

    depends_on("c", type="build")
    depends_on("python@3.10:", type=("build", "run"))
    depends_on("py-setuptools@80:", type="build")
    depends_on("py-setuptools-scm@8:", type="build")
