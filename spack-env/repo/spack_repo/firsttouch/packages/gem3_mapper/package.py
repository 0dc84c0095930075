# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: F403, F405, D102, ARG002
"""GEM3, which Spack does not have."""

from spack.package import *
from spack_repo.builtin.build_systems.autotools import AutotoolsPackage


class Gem3Mapper(AutotoolsPackage):
    """A read mapper with an FM-index and adaptive gapped search (S. Marco-Sola et al.)."""

    homepage = "https://github.com/smarco/gem3-mapper"
    url = "https://github.com/smarco/gem3-mapper/archive/v3.6.1.tar.gz"

    maintainers("firsttouch-developers")
    license("GPL-3.0-only")

    version("3.6.1", sha256="195f158691fe85bacc90b9cf848f203aeba1c56332516261da3774fee3f7ddbf")

    depends_on("c", type="build")
    depends_on("zlib-api")
    depends_on("bzip2")

    parallel = False

    def flag_handler(self, name, flags):
        # Its headers define globals, which GCC 10 and newer no longer merge by default.
        if name == "cflags":
            flags.append("-fcommon")
        return (flags, None, None)

    def install(self, spec, prefix):
        mkdirp(prefix.bin)
        for program in ("gem-indexer", "gem-mapper", "gem-retriever"):
            install(join_path("bin", program), prefix.bin)
