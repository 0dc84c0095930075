# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: F403, F405, D102, ARG002
"""Bowtie 2's aligner once for each type of lock, which can be installed beside Spack's bowtie2."""

from spack.package import *
from spack_repo.builtin.packages.bowtie2.package import Bowtie2

#: make's variables for each lock, as in studies/locks/lock-variants.toml.
LOCKS = {
    "spin": ("NO_QUEUELOCK=1",),
    "standard": ("NO_QUEUELOCK=1", "NO_SPINLOCK=1"),
    "queuing": (),
}


class Bowtie2Lock(Bowtie2):
    """Bowtie 2's aligner with a chosen lock: bowtie2-align-s-spin, -standard (std::mutex) and -queuing (MCS)."""

    maintainers("firsttouch-developers")
    version("2.5.4", sha256="94ec207a0494b9f5e0e62dbbca8cb79fe4ff16602395802a86d098349c6ef004")

    variant(
        "lock",
        default=",".join(LOCKS),
        values=tuple(LOCKS),
        multi=True,
        description="Types of lock; one program each",
    )

    conflicts("@:2.4", msg="these releases have other locks")

    def build(self, spec, prefix):
        for lock in spec.variants["lock"].value:
            make("bowtie2-align-s", *self.build_targets, *LOCKS[lock])
            rename("bowtie2-align-s", f"bowtie2-align-s-{lock}")

    def install(self, spec, prefix):
        mkdirp(prefix.bin)
        for lock in spec.variants["lock"].value:
            install(f"bowtie2-align-s-{lock}", prefix.bin)
