# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: F403, F405, D102, ARG002
"""Bowtie's aligner once for each type of lock, which can be installed beside Spack's bowtie."""

from spack.package import *
from spack_repo.builtin.packages.bowtie.package import Bowtie

#: make's variables for each lock, as in studies/locks/lock-variants.toml.
LOCKS = {
    "spin": (),
    "standard": ("NO_SPINLOCK=1",),
    "queuing": ("WITH_QUEUELOCK=1",),
}


class BowtieLock(Bowtie):
    """Bowtie's aligner with a chosen lock: bowtie-align-s-spin, -standard (std::mutex) and -queuing (MCS)."""

    maintainers("firsttouch-developers")
    version("1.3.1", sha256="147d9fe9652f7c5f351bfc0eb012e06981986fb43bd6bdfe88a95c02eabc6573")

    variant(
        "lock",
        default=",".join(LOCKS),
        values=tuple(LOCKS),
        multi=True,
        description="Types of lock; one program each",
    )

    conflicts("@:1.2", msg="these releases have other locks")

    def build(self, spec, prefix):
        for lock in spec.variants["lock"].value:
            make("bowtie-align-s", *LOCKS[lock])
            rename("bowtie-align-s", f"bowtie-align-s-{lock}")

    def install(self, spec, prefix):
        mkdirp(prefix.bin)
        for lock in spec.variants["lock"].value:
            install(f"bowtie-align-s-{lock}", prefix.bin)
