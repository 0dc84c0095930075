# SPDX-License-Identifier: Apache-2.0
"""Gets datasets into the store: downloads, Debian packages and generated files, each verified by its checksum."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from msgspec.structs import replace

from firsttouch import paths
from firsttouch.datasets import store
from firsttouch.datasets.manifest import UNPINNED, DataFile, Dataset, Expect, Options, load, without_login
from firsttouch.datasets.store import NoRoom, Place, Progress, name_disk_errors, need_space
from firsttouch.errors import BadInput, FirstTouchError, Missing, RunFailed

if TYPE_CHECKING:
    import requests

# ----------------------------------------------------------------------
# Files of installed Debian packages


def package_file(package: str, path: Path) -> Path:
    """Return *path*, a file of *package*; raises Missing with the command that installs it."""
    if path.is_file():
        return path
    # Container images often exclude /usr/share/doc, which has the examples of packages.
    include = f"-o DPkg::Options::=--path-include={path.parent}/*"
    raise Missing(f"{path} is not on this host: apt-get install --reinstall {include} {package}")


# ----------------------------------------------------------------------
# Downloads over HTTP that resume. If the file changed on the server meanwhile, its checksum shows it.

#: Attempts in a row without a new byte after which a download fails.
GIVE_UP = 3
#: Seconds before the second attempt; each further wait is twice as long.
RETRY_WAIT = 2.0
_TIMEOUT = (20, 60)  # seconds to connect, and between two packets
_CHUNK = 1 << 16  # bytes of a read; an incomplete read is lost when the connection breaks


class _Interrupted(Exception):
    """A transfer stopped before its end; another attempt may continue it."""


def download(url: str, part: Path, progress: Progress, *, limit: int | None = None) -> None:
    """Download the content of *url*, or its first *limit* bytes, to *part*, which may hold its beginning.

    Raises Missing (unreachable, absent, disk full) or RunFailed (repeatedly interrupted). *part* is kept, so that
    the next call resumes.
    """
    stalled, most = 0, _size(part)
    while True:
        try:
            _attempt(url, part, progress, limit)
            return
        except _Interrupted as error:
            size = _size(part)
            stalled, most = (0, size) if size > most else (stalled + 1, most)
            if stalled >= GIVE_UP:
                reason = f"{without_login(url)}: {error} after {size} bytes; run again to continue"
                raise RunFailed(reason) from None
            progress(f"{error}, trying again: {part.stem}", size, None)
            time.sleep(RETRY_WAIT * 2**stalled)


def _attempt(url: str, part: Path, progress: Progress, limit: int | None) -> None:
    """Request the bytes that *part* lacks; raises _Interrupted if the transfer stops early."""
    import requests  # noqa: PLC0415 (slow to import, and a dataset in the store needs no network)

    size = _size(part)
    if limit and size >= limit:
        return
    # Archives serve .gz files unchanged; compression by a proxy would change the length.
    headers = {"Accept-Encoding": "identity"}
    if size or limit:
        headers["Range"] = f"bytes={size}-{limit - 1 if limit else ''}"
    try:
        response = requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT)
    except requests.RequestException as error:
        shown = without_login(url)
        reason = _innermost(error).replace(url, shown)
        raise Missing(f"cannot reach {urlsplit(shown).netloc} for {shown}: {reason}") from None
    with response:
        if response.status_code == 416:  # the range does not exist
            if response.headers.get("Content-Range") == f"bytes */{size}":
                return
            part.unlink(missing_ok=True)
        _check_status(response, url)
        start, total = _range(response, limit)
        if start not in (0, size):
            raise _Interrupted("the server sent another range")
        with name_disk_errors(part.parent, total):
            if total is not None:
                need_space(part.parent, total - start, f"the rest of {part.stem}")
            _receive(response, part, start, total, progress)


def _receive(response: requests.Response, part: Path, size: int, total: int | None, progress: Progress) -> None:
    """Write the body of *response* to *part* from byte *size* on."""
    import urllib3  # noqa: PLC0415 (slow to import)

    with part.open("r+b" if size else "wb") as file:
        file.seek(size)
        file.truncate()
        while total is None or size < total:
            wanted = _CHUNK if total is None else min(_CHUNK, total - size)
            try:
                chunk = response.raw.read(wanted, decode_content=False)
            except urllib3.exceptions.HTTPError:
                raise _Interrupted("the connection broke") from None
            if not chunk:
                break
            file.write(chunk)
            size += len(chunk)
            progress(f"downloading {part.stem}", size, total)
    if total is not None and size != total:
        raise _Interrupted(f"the connection broke ({size} of {total} bytes)")


def _check_status(response: requests.Response, url: str) -> None:
    """Raise _Interrupted or Missing for a status other than 200 and 206."""
    status = response.status_code
    if status in (200, 206):
        return
    if status in (416, 429) or status >= 500:
        raise _Interrupted(f"the server answered {status} {response.reason}")
    raise Missing(f"cannot download {without_login(url)}: the server answered {status} {response.reason}")


def _range(response: requests.Response, limit: int | None) -> tuple[int, int | None]:
    """Return the first byte in *response*, and the total size of the content (None: unknown)."""
    if response.status_code == 206:
        span = re.match(r"bytes (\d+)-(\d+)/", response.headers.get("Content-Range", ""))
        if not span:
            raise _Interrupted("the server sent a range without saying which")
        return int(span[1]), int(span[2]) + 1
    length = response.headers.get("Content-Length", "")
    if length.isdecimal():
        return 0, min(int(length), limit) if limit else int(length)
    if response.headers.get("Transfer-Encoding", "").lower() != "chunked":
        # The end of such a body looks like a broken connection.
        raise Missing(f"cannot download {without_login(response.url)}: the server does not state its length")
    return 0, limit


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _innermost(error: BaseException) -> str:
    """Return the reason of the innermost error; outer errors repeat the URL and class names."""
    while inner := error.__cause__ or error.__context__:
        error = inner
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


# ----------------------------------------------------------------------
# Getting and verifying datasets

#: Relative difference allowed between the number of reads and a published figure, which is rounded to millions.
_ROUNDED = 0.05


class LocalDataset(NamedTuple):
    """A dataset in the store."""

    name: str
    reference: Path  #: FASTA, decompressed
    reads: tuple[Path, ...]  #: FASTQ, decompressed: one file single-end, two paired, none for a reference alone
    expect: Expect
    sha256: str = ""  #: of the reference
    notes: tuple[str, ...] = ()  #: one line for each file without a published checksum


class _Request(NamedTuple):
    """A requested dataset with its options: its place in the store, its files and their expected facts."""

    dataset: Dataset
    place: Place
    files: tuple[DataFile, ...]
    expect: Expect
    options: Options | None


def get(
    name: str,
    *,
    progress: Progress | None = None,
    from_files: Sequence[Path] = (),
    **options: Any,
) -> LocalDataset:
    """Get the files of the dataset *name* that the store lacks, and return the dataset.

    *from_files* replace the downloads, in the manifest's order. *options* belong to a generated dataset:
    genome_size (bases, or a text such as ``50MB``), repeat_fraction, seed, pairs, read_length. Raises BadInput,
    Missing (no network, no program, disk full) or RunFailed (wrong checksum, broken download).
    """
    report = progress or (lambda *_: None)
    request = _request(name, options)
    given = _given_files(request, from_files)
    if given or not all(request.place.is_untouched(file) for file in request.files):
        with request.place.lock(report):
            for file in request.files:
                if file.name in given or not request.place.intact(file, report):
                    _obtain(request, file, given.get(file.name), report)
    reference = get(request.dataset.reference, progress=progress) if request.dataset.reference else None
    return _local(request, reference)


def state(dataset: Dataset) -> str:
    """Return the state of *dataset* in the store: ready, partial, absent, or the number of generated ones."""
    if dataset.kind == "generated":
        count = len(list((paths.data() / dataset.name).glob("*/state.json")))
        return f"{count} made" if count else "absent"
    place = Place(paths.data() / dataset.name)
    present = [place.path(file.name).is_file() and bool(place.record(file.name)) for file in dataset.files]
    if all(present):
        return "ready"
    return "partial" if any(present) or any(place.folder.glob("*.part")) else "absent"


def _request(name: str, options: dict[str, Any]) -> _Request:
    dataset = load(name)
    place = Place(paths.data() / name)
    if dataset.options:
        from firsttouch.datasets import synthetic  # noqa: PLC0415 - most datasets are not generated

        chosen = synthetic.options_of(dataset.options, options)
        expect = replace(dataset.expect, reads=chosen.pairs, read_length=chosen.read_length)
        place = Place(place.folder / synthetic.tag(chosen))
        return _Request(dataset, place, synthetic.files(chosen), expect, chosen)
    if options:
        raise BadInput(f"{name} is not generated and takes no option {min(options)!r}")
    return _Request(dataset, place, dataset.files, dataset.expect, None)


def _given_files(request: _Request, from_files: Sequence[Path]) -> dict[str, Path]:
    """Return *from_files* by their names in the dataset."""
    if not from_files:
        return {}
    names = [file.name for file in request.files] if request.dataset.kind in ("url", "manual") else []
    if len(names) != len(from_files):
        wants = f"{len(names)} file{'s' * (len(names) > 1)} ({', '.join(names)})" if names else "no files"
        raise BadInput(f"{request.dataset.name} takes {wants} with --from; {len(from_files)} are given")
    for path in from_files:
        if not path.is_file() or not os.access(path, os.R_OK):
            raise BadInput("no such file, or not readable", file=path)
    return dict(zip(names, from_files, strict=True))


def _obtain(request: _Request, file: DataFile, given: Path | None, progress: Progress) -> None:
    """Put *file* into the store, from the *given* file or from the source that its manifest names."""
    if request.options:
        from firsttouch.datasets import synthetic  # noqa: PLC0415 - see _request

        synthetic.make(request.place, request.options, progress)
        return
    part = request.place.path(file.name + ".part")
    path = given or _fetch(request, file, part, progress)
    origin = without_login(file.source) if path == part else str(path)
    try:
        if not given or file.checksum == UNPINNED:
            _check_packed(file, path, progress)
        _unpack(request, file, path, origin, progress)
    except store.Corrupt as error:
        if given:
            raise BadInput(str(error), file=given) from None
        if path == part:
            part.unlink()
            raise RunFailed(f"{origin}: {error}; the file was removed{_hint(request)}") from None
        raise RunFailed(f"{origin}: {error}") from None
    part.unlink(missing_ok=True)


def _fetch(request: _Request, file: DataFile, part: Path, progress: Progress) -> Path:
    """Return the path of *file* as published (packed); a download goes to *part*."""
    dataset = request.dataset
    if dataset.kind == "package":
        return package_file(dataset.package, Path(file.source))
    if dataset.kind == "manual":
        raise Missing(f"{dataset.name} cannot be downloaded: {dataset.how}")
    try:
        need_space(request.place.folder, file.bytes_about or 0, f"the unpacked {file.name}")
        if file.why_unpinned and (file.first_bytes or not file.source.endswith(".gz")):
            # Nothing would show that an earlier part belongs to another version of the file.
            part.unlink(missing_ok=True)
        download(file.source, part, progress, limit=file.first_bytes)
    except NoRoom:
        raise
    except FirstTouchError as error:
        raise type(error)(f"{error}{_hint(request)}") from None
    return part


def _hint(request: _Request) -> str:
    return f"; or hand it in: firsttouch data get {request.dataset.name} --from FILE"


def _check_packed(file: DataFile, path: Path, progress: Progress) -> None:
    """Raise Corrupt if *path*, a file as published, has another checksum than the manifest states."""
    if file.packed_checksum:
        algorithm, expected = file.packed_checksum.split(":")
        progress(f"checking {file.name}", 0, None)
        actual = store.digest_of(path, algorithm)
        if actual != expected:
            raise store.Corrupt(f"{algorithm} is {actual}, expected {expected}")


def _unpack(request: _Request, file: DataFile, path: Path, origin: str, progress: Progress) -> None:
    """Put the decompressed content of *path* into the store as *file*; raises Corrupt for unexpected content."""
    algorithm, _, expected = file.checksum.partition(":")
    pinned = file.checksum != UNPINNED
    chunks = store.unpacked(
        path, f"unpacking {file.name}", progress, partial=file.first_bytes is not None, tail_ignored=pinned
    )
    if file.first_reads or file.truncate:
        chunks = store.cut_reads(chunks, file.first_reads, file.truncate)
    with request.place.temporary() as folder, name_disk_errors(request.place.folder, file.bytes_about):
        temporary = folder / file.name
        facts = store.write(chunks, temporary, file.role)
        actual = facts.sha256 if algorithm == "sha256" or not pinned else store.digest_of(temporary, algorithm)
        if pinned and actual != expected:
            raise store.Corrupt(f"{algorithm} of the unpacked {file.name} is {actual}, expected {file.checksum}")
        _check_facts(request, file, facts)
        request.place.keep(temporary, file, facts.sha256, origin)


def _check_facts(request: _Request, file: DataFile, facts: store.FileFacts) -> None:
    """Raise Corrupt if *facts* differ from the manifest or from the first download."""
    expect, sha256 = request.expect, facts.sha256
    if file.role == "reads":
        about = expect.reads_about or facts.records
        if abs(facts.records - about) > _ROUNDED * about:
            raise store.Corrupt(f"reads: {facts.records}, expected about {about}")
        actual: dict[str, int | None] = {"reads": facts.records, "read_length": facts.read_length}
    else:
        actual = {"contigs": facts.records}
    for key, value in actual.items():
        if (expected := getattr(expect, key)) not in (None, value):
            raise store.Corrupt(f"{key}: {value}, expected {expected}")
    entry = request.place.record(file.name)
    if file.checksum == UNPINNED and entry.get("recipe") == file.recipe and entry["sha256"] != sha256:
        raise store.Corrupt(
            f"sha256 of {file.name} is {sha256}, but {entry['sha256']} when it was first downloaded; "
            f"to accept the new one remove {request.place.state_path}"
        )


def _local(request: _Request, reference: LocalDataset | None) -> LocalDataset:
    place, files = request.place, request.files
    notes = [
        f"{file.name}: no published checksum ({file.why_unpinned}); its sha256 "
        f"{place.record(file.name)['sha256']} was recorded when it was first downloaded and is enforced since"
        for file in files
        if file.why_unpinned
    ]
    paths: dict[str, list[Path]] = {"reference": [], "reads": []}
    for file in files:
        paths[file.role].append(place.path(file.name))
    sums = [place.record(file.name)["sha256"] for file in files if file.role == "reference"]
    return LocalDataset(
        name=request.dataset.name,
        reference=reference.reference if reference else paths["reference"][0],
        reads=tuple(paths["reads"]),
        expect=request.expect,
        sha256=reference.sha256 if reference else sums[0],
        notes=(*notes, *(reference.notes if reference else ())),
    )
