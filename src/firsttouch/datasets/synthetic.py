# SPDX-License-Identifier: Apache-2.0
"""Generates datasets: a random genome, and reads of it simulated by dwgsim."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

from msgspec.structs import asdict

from firsttouch.datasets import store
from firsttouch.datasets.manifest import DataFile, Options
from firsttouch.datasets.store import Place, Progress, need_space
from firsttouch.errors import BadInput, Missing, RunFailed, none_such
from firsttouch.execution.child_process import child, follow, last_lines
from firsttouch.units import parse_bytes

# ----------------------------------------------------------------------
# Synthetic datasets, generated once for each set of options

GENOME = "genome.fa"
READS = ("reads_1.fq", "reads_2.fq")
_ERROR_RATE = "0.01"  # per base, about the rate of the sequencers of the other datasets
_INSERT = 500  # bases from end to end of a pair; dwgsim's default, fixed here


def tag(options: Options) -> str:
    """Return a folder name that is unique for these options."""
    o = options
    return f"g{o.genome_size}-r{o.repeat_fraction!r}-s{o.seed}-p{o.pairs}-l{o.read_length}"


def files(options: Options) -> tuple[DataFile, ...]:
    """Return the files of the dataset, the reference first."""
    genome = DataFile("reference", GENOME, path=f"genome {tag(options)}")
    return (genome, *(DataFile("reads", name, path=f"dwgsim {tag(options)}") for name in READS))


def options_of(defaults: Options, given: Mapping[str, Any]) -> Options:
    """Return *defaults* with the options *given*; the genome's size may be a text such as ``50MB``."""
    types = get_type_hints(Options)
    if unknown := set(given).difference(types):
        raise BadInput(none_such("option", min(unknown), types))
    values = {**asdict(defaults), **given}
    if isinstance(size := values["genome_size"], str):
        values["genome_size"] = parse_bytes(size)
    try:
        typed = {name: types[name](value) for name, value in values.items()}
    except (TypeError, ValueError) as error:
        raise BadInput(f"an option of a synthetic dataset is not a number: {error}") from None
    try:
        return Options(**typed)
    except ValueError as error:
        raise BadInput(str(error)) from None


def make(place: Place, options: Options, progress: Progress) -> None:
    """Generate the files that *place* lacks; raises Missing (dwgsim, disk) or RunFailed."""
    program = shutil.which("dwgsim")
    if program is None:
        raise Missing("dwgsim, which makes the reads, is not on this host: apt-get install dwgsim")
    # dwgsim exits with 0 on a full disk, so the space is checked before and the output after the run.
    text = 2 * options.pairs * (2 * options.read_length + 80)
    need_space(place.folder, options.genome_size * 81 // 80 + text * 3 // 2, "the synthetic dataset")
    genome, *reads = files(options)
    if not place.intact(genome, progress):
        with place.temporary() as folder:
            from firsttouch.datasets.genome import fasta  # noqa: PLC0415 (slow to import, as it needs NumPy)

            progress(f"making {GENOME}", 0, None)
            chunks = fasta(options.genome_size, options.repeat_fraction, options.seed)
            facts = store.write(chunks, folder / GENOME, "reference")
            place.keep(folder / GENOME, genome, facts.sha256, "firsttouch")
    if not all(place.intact(file, progress) for file in reads):
        with place.temporary() as folder:
            argv = _argv(program, options, place.path(GENOME), folder / "sim")
            _simulate(argv, folder, progress)
            for i, file in enumerate(reads, start=1):
                packed = folder / f"sim.bwa.read{i}.fastq.gz"
                facts = _unpack(packed, folder / file.name, options, progress)
                place.keep(folder / file.name, file, facts.sha256, " ".join(argv[:-2]))


def _argv(program: str, options: Options, genome: Path, prefix: Path) -> list[str]:
    """Return dwgsim's argv for Illumina pairs without random reads: one FASTQ file per end."""
    length = str(options.read_length)
    return [
        *(program, "-z", str(options.seed), "-N", str(options.pairs), "-1", length, "-2", length),
        *("-d", str(_INSERT), "-e", _ERROR_RATE, "-E", _ERROR_RATE, "-y", "0", "-o", "1"),
        *(str(genome), str(prefix)),
    ]


def _simulate(argv: list[str], folder: Path, progress: Progress) -> None:
    """Run dwgsim, with the size of its output as progress; raises RunFailed with its last line."""
    log = folder / "dwgsim.log"

    def report() -> None:
        written = sum(path.stat().st_size for path in folder.glob("sim.*"))
        progress("simulating reads with dwgsim", written, None)

    with log.open("wb") as out, child(argv, stdout=out, stderr=out) as process:
        status = follow(process, 0.1, report)
    if status != 0:
        raise RunFailed(f"dwgsim ended with {status}: {last_lines(log, 1) or 'no output'}")


def _unpack(packed: Path, target: Path, options: Options, progress: Progress) -> store.FileFacts:
    """Decompress a file of dwgsim, and check the number and length of its reads."""
    if not packed.is_file():
        raise RunFailed(f"dwgsim succeeded but wrote no {packed.name}")
    chunks = store.unpacked(packed, f"unpacking {target.name}", progress)
    try:
        facts = store.write(chunks, target, "reads")
    except store.Corrupt as error:
        raise RunFailed(f"dwgsim's {packed.name}: {error}; is the disk full?") from None
    if (facts.records, facts.read_length) != (options.pairs, options.read_length):
        raise RunFailed(
            f"dwgsim wrote {facts.records} reads of {facts.read_length} bases, "
            f"not {options.pairs} of {options.read_length}"
        )
    return facts
