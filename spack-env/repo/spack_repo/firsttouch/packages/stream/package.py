# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: F403, F405, D102
"""STREAM from the author's file, by checksum. Spack's recipe builds the current state of a fork's branch."""

from spack.package import *
from spack_repo.builtin.build_systems.generic import Package


class Stream(Package):
    """Sustainable memory bandwidth of four simple vector kernels (J. McCalpin)."""

    homepage = "https://www.cs.virginia.edu/stream/ref.html"
    url = "https://www.cs.virginia.edu/stream/FTP/Code/stream.c"

    maintainers("firsttouch-developers")
    license("LicenseRef-STREAM")

    version("5.10", sha256="a52bae5e175bea3f7832112af9c085adab47117f7d2ce219165379849231692b", expand=False)

    variant("openmp", default=True, description="Build with OpenMP")
    variant(
        "stream_array_size",
        default="80000000",
        values=lambda text: text.isdigit(),
        description="Elements per array",
    )
    variant("ntimes", default="10", values=lambda text: text.isdigit(), description="Passes over the arrays")

    depends_on("c", type="build")

    def install(self, spec, prefix):
        mkdirp(prefix.bin)
        size, repetitions = (spec.variants[name].value for name in ("stream_array_size", "ntimes"))
        # The default code model cannot address static arrays of more than 2 GiB.
        model = ["-mcmodel=medium"] if spec.satisfies("target=x86_64:") else []
        openmp = [self.compiler.openmp_flag] if spec.satisfies("+openmp") else []
        Executable(spack_cc)(
            *("-O3", *model, *openmp, f"-DSTREAM_ARRAY_SIZE={size}", f"-DNTIMES={repetitions}"),
            *("stream.c", "-o", join_path(prefix.bin, "stream")),
        )
