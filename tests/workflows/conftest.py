# SPDX-License-Identifier: Apache-2.0
"""The real Snakemake, Nextflow and Slurm, and a folder with two samples for their pipelines."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import binding_slurm
import engines
import pytest
from pipeline_site import Site

from factories.installation import CannotInstall


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give this folder's tests a time limit that includes the installation of the engines."""
    for item in items:
        if item.nodeid.startswith("tests/workflows/"):
            item.add_marker(pytest.mark.timeout(600))


def _engine(install: Callable[[], Path]) -> Path:
    try:
        return install()
    except CannotInstall as error:
        pytest.skip(f"WORKFLOWS ARE NOT TESTED: {error}")


@pytest.fixture(scope="session")
def snakemake() -> Path:
    """The real Snakemake, installed if possible."""
    return _engine(engines.snakemake)


@pytest.fixture(scope="session")
def multiqc() -> Path:
    """The real MultiQC, installed if possible."""
    return _engine(engines.multiqc)


@pytest.fixture(scope="session")
def nextflow() -> Path:
    """The real Nextflow, installed if possible."""
    return _engine(engines.nextflow)


@pytest.fixture(scope="session")
def slurm() -> Iterator[dict[str, str]]:
    """A real Slurm, which binds jobs to their PUs: the environment of its users."""
    if why := binding_slurm.why_not():
        pytest.skip(f"Slurm cannot run here: {why}")
    # The paths of sockets must be short.
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    daemons = binding_slurm.BindingSlurm(folder)
    try:
        daemons.up()
        yield {"SLURM_CONF": daemons.env["SLURM_CONF"]}
    finally:
        daemons.down()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def site(tmp_path: Path, lambda_work: tuple[Path, tuple[Path, ...], Path]) -> Site:
    """A working folder with two samples of the dataset lambda."""
    _, reads, reference = lambda_work
    return Site.create(tmp_path, reads, reference)
