# SPDX-License-Identifier: Apache-2.0
"""Fetches datasets: downloads, Debian packages and generated files, each verified by its checksum."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from firsttouch.datasets import store, synthetic
from firsttouch.datasets.manifest import UNPINNED, DataFile, Dataset, load, without_login
from firsttouch.datasets.store import (
    NoRoom,
    Place,
    Progress,
    discard,
    need_space,
    root,
    version_path,
    write_json,
    writing,
)
from firsttouch.errors import BadInput, FirstTouchError, Missing, RunFailed
from firsttouch.tools import run_tool

if TYPE_CHECKING:
    import requests

# ----------------------------------------------------------------------
# Files of installed Debian packages.


def packaged(package: str, path: Path) -> Path:
    """Return *path*, a file of *package*; raises Missing with the command that brings it."""
    if path.is_file():
        return path
    if _installed(package):
        # Container images often tell dpkg to leave out /usr/share/doc, where examples are.
        raise Missing(
            f"{package} is installed without {path}, which dpkg was told to exclude: apt-get install --reinstall "
            f"-o DPkg::Options::=--path-include={path.parent}/* {package}"
        )
    raise Missing(f"{path} is not on this host: apt-get install {package}")


def _installed(package: str) -> bool:
    try:
        query = ["dpkg-query", "--show", "--showformat", "${db:Status-Status}", package]
        answer = run_tool(query)
    except Missing:
        return False  # not a Debian host
    return answer.stdout == "installed"


# ----------------------------------------------------------------------
# Downloads over http(s) that resume where they stopped, or start over, and never pass for whole.
#
# The bytes are collected in PART; PART.json says of which version of which URL they are. A range is asked for
# only under If-Range with that version's validator, so that a file that changed upstream starts over.

#: A broken transfer is given up after so many attempts in a row that bring no new byte.
GIVE_UP = 3
#: Seconds before the second attempt; each further wait is twice as long.
RETRY_WAIT = 2.0
_TIMEOUT = (20, 60)  # seconds to connect, and between two packets
_CHUNK = 1 << 16  # a read waits for all of it: what is less is lost when the transfer breaks


class _Broken(Exception):
    """The transfer stopped before its end; another attempt may go on."""


@dataclass(frozen=True)
class _Version:
    """Which version of which URL the bytes of a part are."""

    url: str
    limit: int | None
    validator: str | None  #: a strong ETag, or Last-Modified; None: the part cannot be resumed
    total: int | None  #: bytes in all


def download(url: str, part: Path, progress: Progress, *, limit: int | None = None) -> None:
    """Bring *part* to the whole content of *url*, or to its first *limit* bytes.

    Raises Missing (unreachable, gone, disk full) or RunFailed (it keeps breaking); *part* stays for the
    next call to resume.
    """
    stalled, most = 0, _size(part)
    while True:
        try:
            _attempt(url, part, progress, limit)
            return
        except _Broken as error:
            got = _size(part)
            stalled, most = (0, got) if got > most else (stalled + 1, most)
            if stalled >= GIVE_UP:
                raise RunFailed(
                    f"{without_login(url)}: {error} after {got} bytes; run again to go on from there"
                ) from None
            progress(f"{error}, trying again: {part.stem}", got, None)
            time.sleep(RETRY_WAIT * 2**stalled)


def _attempt(url: str, part: Path, progress: Progress, limit: int | None) -> None:
    """Ask once for what *part* lacks; raises _Broken where it stops early."""
    import requests  # noqa: PLC0415 - a dataset that is in the store needs no network

    known = _known(part, url, limit)
    have = _size(part) if known else 0
    if known and known.total == have:
        return
    # Archives serve .gz files as they are; a proxy that compresses would make the length meaningless.
    headers = {"Accept-Encoding": "identity"}
    if have or limit:
        headers["Range"] = f"bytes={have}-{limit - 1 if limit else ''}"
    if have and known and known.validator:
        headers["If-Range"] = known.validator
    try:
        response = requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT)
    except requests.RequestException as error:
        shown = without_login(url)
        reason = _root(error).replace(url, shown)
        raise Missing(f"cannot reach {urlsplit(shown).netloc} for {shown}: {reason}") from None
    with response:
        if response.status_code == 416:  # there is no such range: the part is of something longer
            discard(part)
        _check_status(response, url)
        start, total = _span(response, limit)
        if start == 0:
            have = 0
        elif not known or (start, total) != (have, known.total) or _changed(response, known):
            discard(part)
            raise _Broken("the server went on with something else than what was begun")
        with writing(part.parent, total):
            if total is not None:
                need_space(part.parent, total - have, f"the rest of {part.stem}")
            _receive(
                response, part, _Version(without_login(url), limit, _validator(response), total), have, progress
            )


def _receive(response: requests.Response, part: Path, version: _Version, have: int, progress: Progress) -> None:
    """Write the body of *response* to *part* from byte *have* on."""
    import urllib3  # noqa: PLC0415 - as requests

    what = f"downloading {part.stem}"
    with part.open("r+b" if have else "wb") as file:
        file.seek(have)
        file.truncate()
        write_json(version_path(part), asdict(version))
        stop = version.total if version.limit else None
        while stop is None or have < stop:
            size = _CHUNK if stop is None else min(_CHUNK, stop - have)
            try:
                chunk = response.raw.read(size, decode_content=False)
            except urllib3.exceptions.HTTPError:
                raise _Broken("the connection broke") from None
            if not chunk:
                break
            file.write(chunk)
            have += len(chunk)
            progress(what, have, version.total)
        if version.total is not None and have != version.total:
            raise _Broken(f"the connection broke ({have} of {version.total} bytes)")
    if version.total is None:
        # The body ended as its transfer coding says: now the length is known, and the part is whole.
        write_json(version_path(part), asdict(version) | {"total": have})


def _check_status(response: requests.Response, url: str) -> None:
    """Raise what an answer other than 200 and 206 means."""
    status = response.status_code
    if status in (200, 206):
        return
    if status in (416, 429) or status >= 500:
        raise _Broken(f"the server answered {status} {response.reason}")
    raise Missing(f"cannot download {without_login(url)}: the server answered {status} {response.reason}")


def _span(response: requests.Response, limit: int | None) -> tuple[int, int | None]:
    """Return the first byte that *response* brings and the bytes there will be in all (None: not said)."""
    if response.status_code == 206:
        span = re.match(r"bytes (\d+)-(\d+)/", response.headers.get("Content-Range", ""))
        if not span:
            raise _Broken("the server sent a range without saying which")
        return int(span[1]), int(span[2]) + 1
    length = response.headers.get("Content-Length", "")
    if length.isdecimal():
        return 0, min(int(length), limit) if limit else int(length)
    if response.headers.get("Transfer-Encoding", "").lower() != "chunked":
        # The end of such a body cannot be told from a broken connection.
        raise Missing(f"cannot download {without_login(response.url)}: the server does not say how long it is")
    return 0, limit


def _validator(response: requests.Response) -> str | None:
    """Return what names this version in If-Range, which takes no weak ETag."""
    etag = response.headers.get("ETag")
    return etag if etag and not etag.startswith("W/") else response.headers.get("Last-Modified")


def _changed(response: requests.Response, known: _Version) -> bool:
    """Say whether a range is of another version; under If-Range a server may leave its validator out."""
    return _validator(response) not in (None, known.validator)


def _known(part: Path, url: str, limit: int | None) -> _Version | None:
    """Return the version that *part* is of, or None where it cannot be gone on with."""
    try:
        version = _Version(**json.loads(version_path(part).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    if (version.url, version.limit) != (without_login(url), limit) or not part.is_file():
        return None
    whole = version.total == _size(part)
    return version if whole or (version.validator and _size(part) < (version.total or 0)) else None


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _root(error: BaseException) -> str:
    """Return the innermost reason of *error*: the outer ones repeat the URL and class names."""
    while inner := error.__cause__ or error.__context__:
        error = inner
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


# ----------------------------------------------------------------------
# Getting a dataset into the store, and verifying what lies there.

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
        got = store.digests_of(path, expected, f"verifying {file.name}", progress or _silent)
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
    except store.Corrupt as error:
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
        return packaged(str(dataset.package), Path(file.source))
    if dataset.kind == "derived":
        get(str(dataset.parent), progress=progress)
        return _plan(str(dataset.parent), {}).place.path(file.source)
    if dataset.kind == "manual":
        raise Missing(f"{dataset.name} cannot be downloaded: {dataset.how}")

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
        got = store.digests_of(path, [algorithm], f"checking {file.name}", progress)[algorithm]
        if got != expected:
            raise store.Corrupt(f"{algorithm} is {got}, expected {expected}")


def _unpack(plan: _Plan, file: DataFile, path: Path, origin: str, progress: Progress) -> None:
    """Put the content of *path* into its place as *file*; raises Corrupt where it is not what it should be."""
    algorithm = file.checksum.split(":")[0]
    pinned = file.checksum != UNPINNED
    chunks = store.gunzip(
        store.read(path, f"unpacking {file.name}", progress),
        partial=file.first_bytes is not None,
        tail_ignored=pinned,
    )
    if file.first_reads or file.truncate:
        chunks = store.cut_reads(chunks, file.first_reads, file.truncate)
    with plan.place.temporary() as folder, writing(plan.place.folder, file.bytes_about):
        temporary = folder / file.name
        facts = store.write(chunks, temporary, file.role, [algorithm] if pinned else [])
        if pinned and facts.digests[algorithm] != file.checksum.split(":")[1]:
            raise store.Corrupt(
                f"{algorithm} of the unpacked {file.name} is {facts.digests[algorithm]}, expected {file.checksum}"
            )
        _check_facts(plan, file, facts)
        plan.place.keep(temporary, file, facts.digests["sha256"], origin)


def _check_facts(plan: _Plan, file: DataFile, facts: store.Facts) -> None:
    """Raise Corrupt where *facts* are not those the manifest expects, or not those of the first download."""
    expect, sha256 = plan.expect, facts.digests["sha256"]
    if file.role == "reads":
        about = expect.get("reads_about", facts.records)
        found: dict[str, int | None] = {"reads": facts.records, "read_length": facts.read_length}
        if abs(facts.records - about) > _ROUNDED * about:
            raise store.Corrupt(f"reads: {facts.records}, expected about {about}")
    else:
        found = {"contigs": facts.records}
    for key, value in found.items():
        if expect.get(key, value) != value:
            raise store.Corrupt(f"{key}: {value}, expected {expect[key]}")
    entry = plan.place.record(file.name)
    if file.checksum == UNPINNED and entry.get("recipe") == file.recipe and entry["sha256"] != sha256:
        raise store.Corrupt(
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
