# SPDX-License-Identifier: Apache-2.0
"""One Slurm of six hosts for all tests of this folder, and the sites that submit campaigns to it."""

from __future__ import annotations

import gzip
import hashlib
import io
import itertools
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import cluster
import pytest
from slurm_site import SMALL, RunCli, Site

from factories.processes import write_program
from firsttouch import paths
from firsttouch.datasets import fetch
from firsttouch.genomics import aligners
from firsttouch.genomics.aligners import aligner
from firsttouch.systems import draft

REFERENCES = {
    # A reference that every host reaches, and one that none reaches.
    "sound": "{check: topology, source: order, metric: numa_nodes, fact: numa_nodes, tolerance: {lower: -1 %}}",
    "larger": "{check: topology, source: order, metric: pus, value: 4096, tolerance: {lower: -3 %}}",
    "rated": "{check: bandwidth, source: x, metric: copy_bandwidth, value: 20 GB/s, tolerance: {lower: -10 %}}",
    "plain": "",
}


@pytest.fixture(scope="session")
def slurm() -> Iterator[cluster.Slurm]:
    """A real Slurm of six hosts with accounting; the host names of n5 and n6X have a domain."""
    if why := cluster.why_not():
        pytest.skip(f"Slurm cannot run here: {why}")
    # The paths of sockets must be short.
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    site_slurm = cluster.Slurm(folder / "slurm", 6, full=2)
    (folder / "small").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", folder / "small"], check=True)
    try:
        site_slurm.up()
        yield site_slurm
    finally:
        site_slurm.down()
        subprocess.run(["umount", "--lazy", folder / "small"], check=False)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def systems(slurm: cluster.Slurm) -> Path:
    """A folder with the systems of REFERENCES, which otherwise describe this machine."""
    folder = slurm.folder / "systems"
    folder.mkdir()
    for name, reference in REFERENCES.items():
        text = draft.draft_host(name)
        if reference:
            text = text.replace("references: []", "references:\n  - " + reference)
        (folder / f"{name}.yaml").write_text(text)
    return folder


@pytest.fixture
def site(
    slurm: cluster.Slurm,
    tmp_path: Path,
    systems: Path,
    variables_of_small_caches: dict[str, str],
    *,
    run_cli: RunCli,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Site]:
    """A user's site with its own results; afterwards the test's jobs are cancelled and all hosts are idle."""
    monkeypatch.setenv("SLURM_CONF", slurm.env["SLURM_CONF"])
    monkeypatch.setenv("FIRSTTOUCH_SYSTEMS", str(systems))
    site = Site(slurm, tmp_path, systems, run_cli)
    site.env |= variables_of_small_caches
    yield site
    slurm.ask("scancel", "--user=root")
    for host in slurm.names:
        if f"slurmd.{host}" not in slurm.running:
            slurm.revive(host)
    if bad := [host for host, state in slurm.states().items() if {"drain", "fail"} & set(state.split("+"))]:
        slurm.ask("scontrol", "update", f"nodename={','.join(bad)}", "state=resume")
    slurm.until(lambda: {*slurm.states().values()} <= {"idle", "idle+planned"}, "idle hosts")


@pytest.fixture(scope="session")
def probe_cache(slurm: cluster.Slurm) -> Path:
    """The real probe's output, for shim.py."""
    folder = slurm.folder / "probe"
    folder.mkdir()
    return folder


@pytest.fixture
def shimmed(site: Site, tmp_path: Path, probe_cache: Path) -> Site:
    """The same with shim.py for the probe: see Site.rates and Site.hold."""
    folder = tmp_path / "shim"
    folder.mkdir()
    real = str(Path(sys.executable).with_name("firsttouch-probe"))
    # It needs nothing of the environment, which would take most of its time.
    program = f"{sys.executable} -SE {Path(__file__).with_name('shim.py')}"
    probe = write_program(
        tmp_path / "probe", f'if [ "$1" = topology ]; then exec {real} "$@"; fi\nexec {program} "$@"'
    )
    site.env |= {"FIRSTTOUCH_PROBE": str(probe), "FIRSTTOUCH_SHIM": str(folder), "FIRSTTOUCH_SHIM_PROBE": real}
    site.env["FIRSTTOUCH_SHIM_CACHE"] = str(probe_cache)
    site.rates()
    return site


@pytest.fixture(scope="session")
def datasets(slurm: cluster.Slurm) -> Path:
    """A folder with a manifest of lambda with half of the reads, which are enough to verify placements."""
    folder = slurm.folder / "datasets"
    folder.mkdir()
    text = (paths.ROOT / "datasets" / "lambda.toml").read_text().replace("reads = 10_000", "reads = 5_000")
    for name in re.findall(r"/\S+/reads_\d\.fq\.gz", text):
        whole = gzip.decompress(Path(name).read_bytes())
        half = b"".join(itertools.islice(io.BytesIO(whole), 4 * 5_000))
        file = folder / Path(name).stem
        file.write_bytes(half)
        # The checksums cover the unpacked reads.
        text = text.replace(name, str(file)).replace(*(hashlib.sha256(r).hexdigest() for r in (whole, half)))
    (folder / "lambda.toml").write_text(text)
    return folder


@pytest.fixture(scope="session")
def store(slurm: cluster.Slurm, datasets: Path) -> Path:
    """A store of datasets with lambda and its index, so that hosts need not build them."""
    folder = slurm.folder / "data"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRSTTOUCH_DATA", str(folder))
        patch.setenv("FIRSTTOUCH_DATASETS", str(datasets))
        reference = fetch.get("lambda").reference
        aligners.get_index(aligner("bwa-mem"), reference, folder / "index", say=lambda _: None)
    return folder


@pytest.fixture
def aligning(site: Site, store: Path, datasets: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A site with the dataset store."""
    monkeypatch.setenv("FIRSTTOUCH_DATASETS", str(datasets))
    site.env |= {"FIRSTTOUCH_DATA": str(store), "FIRSTTOUCH_DATASETS": str(datasets)}
    return site
