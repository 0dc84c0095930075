# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: F403, F405, D102, ARG002
"""lmbench's last release. Spack's recipe builds the current state of a fork's branch."""

from pathlib import Path

from spack.package import *
from spack_repo.builtin.build_systems.makefile import MakefilePackage


class Lmbench(MakefilePackage):
    """Latencies and bandwidths of memory and of the operating system (L. McVoy and C. Staelin)."""

    homepage = "https://lmbench.sourceforge.net/"
    url = "https://downloads.sourceforge.net/project/lmbench/development/lmbench-3.0-a9/lmbench-3.0-a9.tgz"

    maintainers("firsttouch-developers")
    license("GPL-2.0-only")

    version("3.0-a9", sha256="cbd5777d15f44eab7666dcac418054c3c09df99826961a397d9acf43d8a2a551")

    depends_on("c", type="build")
    depends_on("libtirpc")

    parallel = False

    def edit(self, spec, prefix):
        # Its makefile needs a file of a version control system that releases do not contain.
        mkdirp("SCCS")
        touch(join_path("SCCS", "s.ChangeSet"))
        rpc = spec["libtirpc"]
        flags = f"-I{rpc.prefix.include.tirpc} {rpc.headers.include_flags} -Wno-error=implicit-int"
        filter_file("^LDLIBS=-lm$", f"LDLIBS='-lm {rpc.libs.ld_flags} -ltirpc'", join_path("scripts", "build"))
        filter_file("-O ", f"-O {flags} ", join_path("src", "Makefile"), string=True)

    def build(self, spec, prefix):
        make("-C", "src", f"CC={spack_cc}", "OS=linux")

    def install(self, spec, prefix):
        mkdirp(prefix.bin)
        for program in Path("bin", "linux").iterdir():
            # The others are libraries and objects.
            if program.suffix == "" and program.is_file():
                install(str(program), prefix.bin)
