# SPDX-License-Identifier: Apache-2.0
"""Getting a dataset into the store, and verifying what lies there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firsttouch.datasets import debian, stream, synthetic
from firsttouch.datasets.manifest import UNPINNED, DataFile, Dataset, load, without_login
from firsttouch.datasets.store import NoRoom, Place, discard, need_space, root, writing
from firsttouch.datasets.stream import Progress
from firsttouch.errors import BadInput, FirstTouchError, Missing, RunFailed

#: How far the count of reads may be from a published figure that is rounded to millions.
_ROUNDED = 0.05


@dataclass(frozen=True)
class LocalDataset:
    """A dataset whose files lie in the store."""

    name: str
    reference: Path  #: FASTA, unpacked
    reads: tuple[Path, ...]  #: FASTQ, unpacked: one file single-end, two paired, none for a reference alone
    expect: dict[str, Any]  #: reads (per file), read_length, mapped_fraction_min, …
    notes: tuple[str, ...] = ()  #: one line on each file whose publisher states no checksum


@dataclass(frozen=True)
class _Plan:
    """A dataset with the options it is asked for: its place, its files and what is expected of them."""

    dataset: Dataset
    place: Place
    files: tuple[DataFile, ...]
    expect: dict[str, Any]
    options: synthetic.Options | None


def get(
    name: str,
    *,
    progress: Progress | None = None,
    from_files: Sequence[Path] = (),
    **options: Any,
) -> LocalDataset:
    """Return the dataset *name*, brought into the store where it is not there whole.

    *from_files* are taken instead of a download, in the manifest's order. *options* are those of a generated
    dataset: genome_size (bases, or a text such as ``50MB``), repeat_fraction, seed, pairs, read_length.
    Raises BadInput, Missing (no network, no program, no room) or RunFailed (wrong checksum, broken download).
    """
    report = progress or _silent
    plan = _plan(name, options)
    handed = _handed(plan, from_files)
    if handed or not all(plan.place.untouched(file) for file in plan.files):
        with plan.place.locked(report):
            for file in plan.files:
                if file.name in handed or not plan.place.intact(file, report):
                    _obtain(plan, file, handed.get(file.name), report)
    reference = get(plan.dataset.reference, progress=progress) if plan.dataset.reference else None
    return _local(plan, reference)


def verify(name: str, *, progress: Progress | None = None, **options: Any) -> LocalDataset:
    """Return the dataset *name* after reading every byte of it; takes *options* as get does.

    Raises Missing where it has not been got and RunFailed where a file is not what it was.
    """
    plan = _plan(name, options)
    for file in plan.files:
        entry, path = plan.place.record(file.name), plan.place.path(file.name)
        again = f"get it with: firsttouch data get {name}"
        if entry.get("recipe") != file.recipe or not path.is_file():
            why = f"{path} was got by another manifest" if path.is_file() else f"no {path}"
            raise Missing(f"{name} is not in the store: {why}; {again}")
        expected = {"sha256": str(entry["sha256"])}
        if file.checksum != UNPINNED:
            algorithm, value = file.checksum.split(":")
            expected[algorithm] = value
        got = stream.digests_of(path, expected, f"verifying {file.name}", progress or _silent)
        for algorithm, value in expected.items():
            if got[algorithm] != value:
                raise RunFailed(f"{path}: {algorithm} is {got[algorithm]}, expected {value}; {again}")
    reference = verify(plan.dataset.reference, progress=progress) if plan.dataset.reference else None
    return _local(plan, reference)


def state(dataset: Dataset) -> str:
    """Say what the store has of *dataset*: ready, partial, absent, or how many were made (generated ones)."""
    if dataset.kind == "generated":
        made = root() / dataset.name
        count = len(list(made.glob("*/state.json")))
        return f"{count} made" if count else "absent"
    place = Place(root() / dataset.name)
    here = [place.path(file.name).is_file() and bool(place.record(file.name)) for file in dataset.files]
    if all(here):
        return "ready"
    return "partial" if any(here) or any(place.folder.glob("*.part")) else "absent"


def _plan(name: str, options: dict[str, Any]) -> _Plan:
    dataset = load(name)
    place = Place(root() / name)
    if dataset.kind == "generated":
        asked = synthetic.options_of(dataset.options, options)
        expect = dataset.expect | asked.expect
        return _Plan(dataset, Place(place.folder / asked.tag), asked.files, expect, asked)
    if options:
        raise BadInput(f"{name} is not generated and takes no option {min(options)!r}")
    return _Plan(dataset, place, dataset.files, dataset.expect, None)


def _handed(plan: _Plan, from_files: Sequence[Path]) -> dict[str, Path]:
    """Return which file of the dataset each of *from_files* is."""
    if not from_files:
        return {}
    names = [file.name for file in plan.files] if plan.dataset.kind in ("url", "manual") else []
    if len(names) != len(from_files):
        wants = f"{len(names)} ({', '.join(names)})" if names else "none: it is not downloaded"
        raise BadInput(f"{plan.dataset.name} takes from files {wants}; {len(from_files)} are given")
    for path in from_files:
        if not path.is_file() or not os.access(path, os.R_OK):
            raise BadInput("no such file, or not readable", file=path)
    return dict(zip(names, from_files, strict=True))


def _obtain(plan: _Plan, file: DataFile, handed: Path | None, progress: Progress) -> None:
    """Bring *file* into its place, from where its dataset's kind says or from the *handed* file."""
    if plan.options:
        synthetic.make(plan.place, plan.options, progress)
        return
    part = plan.place.path(file.name + ".part")
    path = handed or _fetch(plan, file, part, progress)
    origin = without_login(file.source) if path == part else str(path)
    try:
        if not handed or file.checksum == UNPINNED:
            _check_packed(file, path, progress)
        _unpack(plan, file, path, origin, progress)
    except stream.Corrupt as error:
        if handed:
            raise BadInput(str(error), file=handed) from None
        if path == part:
            discard(part)
            raise RunFailed(f"{origin}: {error}; the file was removed{_hint(plan)}") from None
        raise RunFailed(f"{origin}: {error}") from None
    discard(part)


def _fetch(plan: _Plan, file: DataFile, part: Path, progress: Progress) -> Path:
    """Return where *file* can be read as its publisher packs it: *part*, where it had to be downloaded."""
    dataset = plan.dataset
    if dataset.kind == "package":
        return debian.packaged(str(dataset.package), Path(file.source))
    if dataset.kind == "derived":
        get(str(dataset.parent), progress=progress)
        return _plan(str(dataset.parent), {}).place.path(file.source)
    if dataset.kind == "manual":
        raise Missing(f"{dataset.name} cannot be downloaded: {dataset.how}")
    from firsttouch.datasets.download import download  # noqa: PLC0415 - as requests, it is slow to import

    try:
        need_space(plan.place.folder, file.bytes_about or 0, f"the unpacked {file.name}")
        download(file.source, part, progress, limit=file.first_bytes)
    except NoRoom:
        raise
    except FirstTouchError as error:
        raise type(error)(f"{error}{_hint(plan)}") from None
    return part


def _hint(plan: _Plan) -> str:
    return f"; or hand it in: firsttouch data get {plan.dataset.name} --from FILE"


def _check_packed(file: DataFile, path: Path, progress: Progress) -> None:
    """Compare *path*, a file as it is published, with its checksum; raises Corrupt where they differ."""
    if file.packed_checksum:
        algorithm, expected = file.packed_checksum.split(":")
        got = stream.digests_of(path, [algorithm], f"checking {file.name}", progress)[algorithm]
        if got != expected:
            raise stream.Corrupt(f"{algorithm} is {got}, expected {expected}")


def _unpack(plan: _Plan, file: DataFile, path: Path, origin: str, progress: Progress) -> None:
    """Put the content of *path* into its place as *file*; raises Corrupt where it is not what it should be."""
    algorithm = file.checksum.split(":")[0]
    pinned = file.checksum != UNPINNED
    chunks = stream.gunzip(
        stream.read(path, f"unpacking {file.name}", progress),
        partial=file.first_bytes is not None,
        tail_ignored=pinned,
    )
    if file.first_reads or file.truncate:
        chunks = stream.cut_reads(chunks, file.first_reads, file.truncate)
    with plan.place.temporary() as folder, writing(plan.place.folder, file.bytes_about):
        temporary = folder / file.name
        facts = stream.write(chunks, temporary, file.role, [algorithm] if pinned else [])
        if pinned and facts.digests[algorithm] != file.checksum.split(":")[1]:
            raise stream.Corrupt(
                f"{algorithm} of the unpacked {file.name} is {facts.digests[algorithm]}, expected {file.checksum}"
            )
        _check_facts(plan, file, facts)
        plan.place.keep(temporary, file, facts.digests["sha256"], origin)


def _check_facts(plan: _Plan, file: DataFile, facts: stream.Facts) -> None:
    """Raise Corrupt where *facts* are not those the manifest expects, or not those of the first download."""
    expect, sha256 = plan.expect, facts.digests["sha256"]
    if file.role == "reads":
        about = expect.get("reads_about", facts.records)
        found: dict[str, int | None] = {"reads": facts.records, "read_length": facts.read_length}
        if abs(facts.records - about) > _ROUNDED * about:
            raise stream.Corrupt(f"reads: {facts.records}, expected about {about}")
    else:
        found = {"contigs": facts.records}
    for key, value in found.items():
        if expect.get(key, value) != value:
            raise stream.Corrupt(f"{key}: {value}, expected {expect[key]}")
    entry = plan.place.record(file.name)
    if file.checksum == UNPINNED and entry.get("recipe") == file.recipe and entry["sha256"] != sha256:
        raise stream.Corrupt(
            f"sha256 of {file.name} is {sha256}, but {entry['sha256']} when it was first got; "
            f"to accept the new one remove {plan.place.state_path}"
        )


def _local(plan: _Plan, reference: LocalDataset | None) -> LocalDataset:
    notes = [
        f"{file.name}: no published checksum ({file.why_unpinned}); its sha256 "
        f"{plan.place.record(file.name)['sha256']} was recorded when it was first got and is enforced since"
        for file in plan.files
        if file.why_unpinned
    ]
    own = [plan.place.path(file.name) for file in plan.files if file.role == "reference"]
    return LocalDataset(
        name=plan.dataset.name,
        reference=reference.reference if reference else own[0],
        reads=tuple(plan.place.path(file.name) for file in plan.files if file.role == "reads"),
        expect=plan.expect,
        notes=(*notes, *(reference.notes if reference else ())),
    )


def _silent(_what: str, _done: int, _total: int | None) -> None:
    """Report nothing."""
