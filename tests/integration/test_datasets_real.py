# SPDX-License-Identifier: Apache-2.0
"""The real lambda dataset of Debian's bowtie2-examples, and synthetic ones with the real dwgsim."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from firsttouch.datasets.fetch import LocalDataset, get
from firsttouch.errors import FirstTouchError

pytestmark = pytest.mark.usefixtures("data_store")

needs_lambda = pytest.mark.skipif(
    not Path("/usr/share/doc/bowtie2/examples/reads/reads_1.fq.gz").is_file(),
    reason="bowtie2-examples is not installed: apt-get install bowtie2-examples",
)
needs_dwgsim = pytest.mark.skipif(
    shutil.which("dwgsim") is None, reason="dwgsim is not installed: apt-get install dwgsim"
)
needs_bwa = pytest.mark.skipif(shutil.which("bwa") is None, reason="bwa is not installed: apt-get install bwa")
SMALL = {"genome_size": "200kB", "pairs": 3000, "read_length": 100, "seed": 5}


def mapped_fraction(local: LocalDataset, tmp_path: Path) -> float:
    """Return the mapped fraction of the primary alignments of the real BWA-MEM."""
    index = tmp_path / "index"
    subprocess.run(["bwa", "index", "-p", str(index), str(local.reference)], check=True, capture_output=True)
    sam = subprocess.run(["bwa", "mem", str(index), *local.reads], check=True, capture_output=True).stdout
    flags = [int(line.split(b"\t")[1]) for line in sam.splitlines() if not line.startswith(b"@")]
    primary = [flag for flag in flags if not flag & 0x900]
    assert len(primary) == 2 * local.expect.reads
    return sum(not flag & 4 for flag in primary) / len(primary)


@needs_lambda
def test_lambda_is_the_phage_and_10000_pairs() -> None:
    local = get("lambda")
    lines = local.reference.read_text().splitlines()
    assert lines[0].startswith(">gi|9626243")
    assert sum(map(len, lines[1:])) == 48_502
    assert [path.read_bytes().count(b"\n") for path in local.reads] == [40_000, 40_000]
    assert local.notes == ()
    assert get("lambda") == local


@needs_lambda
@needs_bwa
def test_lambda_maps_as_the_manifest_says(tmp_path: Path) -> None:
    local = get("lambda")
    assert local.expect.mapped_fraction("bwa-mem") <= mapped_fraction(local, tmp_path) < 0.99


@needs_dwgsim
def test_synthetic_has_what_was_asked_for(data_store: Path) -> None:
    local = get("synthetic", **SMALL)
    lines = local.reference.read_text().splitlines()
    assert sum(map(len, lines[1:])) == 200_000
    for path in local.reads:
        reads = path.read_text().splitlines()
        assert len(reads) == 4 * 3000
        assert {len(read) for read in reads[1::4]} == {100}
    assert (local.expect.reads, local.expect.read_length) == (3000, 100)
    assert sorted(path.name for path in local.reference.parent.iterdir()) == [
        ".lock",
        "genome.fa",
        "reads_1.fq",
        "reads_2.fq",
        "state.json",
    ]
    assert get("synthetic", **SMALL) == local


@needs_dwgsim
def test_the_same_options_give_the_same_bytes_and_others_are_kept_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = get("synthetic", **SMALL)
    other = get("synthetic", **(SMALL | {"seed": 6}))
    monkeypatch.setenv("FIRSTTOUCH_DATA", str(tmp_path / "second"))
    again = get("synthetic", **SMALL)
    for first, second, third in zip(
        (dataset.reference, *dataset.reads),
        (again.reference, *again.reads),
        (other.reference, *other.reads),
        strict=True,
    ):
        assert first.read_bytes() == second.read_bytes()
        assert first.read_bytes() != third.read_bytes()


@needs_dwgsim
@needs_bwa
def test_synthetic_maps_as_the_manifest_says(tmp_path: Path) -> None:
    local = get("synthetic", **SMALL)
    assert mapped_fraction(local, tmp_path) >= local.expect.mapped_fraction("bwa-mem")


@needs_dwgsim
@pytest.mark.parametrize("foreseen", [True, False])
def test_a_disk_that_fills_while_dwgsim_writes_is_seen(
    small_disk: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, foreseen: bool
) -> None:
    # dwgsim itself then exits with 0 and leaves truncated reads.
    folder = small_disk("1500k")
    monkeypatch.setenv("FIRSTTOUCH_DATA", str(folder))
    if not foreseen:
        monkeypatch.setattr("firsttouch.datasets.synthetic.need_space", lambda *_: None)
    with pytest.raises(FirstTouchError, match="disk full"):
        get("synthetic", **(SMALL | {"pairs": 12_000}))
    (place,) = (folder / "synthetic").iterdir()
    assert not [path.name for path in place.iterdir() if path.suffix == ".fq"]
