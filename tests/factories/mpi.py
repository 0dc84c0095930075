# SPDX-License-Identifier: Apache-2.0
"""Programs of MPI, and the variables that let their ranks run as root, and on hosts that are namespaces."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

#: Open MPI refuses both otherwise. UCX, which MPICH uses, takes processes of this machine for neighbours that can
#: read each other's memory, and ranks of two hosts have separate namespaces.
VARIABLES = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "UCX_TLS": "tcp,self",
}


def program(library: str, folder: Path) -> Path:
    """Return mpi_sum.c, built in *folder* with a *library* as Debian calls it: ``mpich`` or ``openmpi``."""
    compiler = shutil.which(f"mpicc.{library}")
    if compiler is None:
        pytest.skip(f"missing here: mpicc.{library} (Debian: lib{library}-dev)")
    built = folder / f"mpi_sum.{library}"
    source = Path(__file__).with_name("mpi_sum.c")
    subprocess.run([compiler, "-O1", "-Wall", "-Wextra", "-Werror", source, "-o", built], check=True)
    return built
