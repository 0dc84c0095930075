# SPDX-License-Identifier: Apache-2.0
"""Manifests of datasets: one TOML file each, validated when it is read.

They lie in the folders ``paths.folders("datasets")``; the first folder with a name takes precedence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from msgspec import Meta, field
from msgspec.structs import fields

from firsttouch import paths
from firsttouch.documents import Bytes, Count, FileTable, ParsedFile, Where, parse_toml, read_text
from firsttouch.errors import BadInput, none_such

UNPINNED = "unpinned"

#: kind of source -> the additional keys of its manifest, and the key of a file's source.
_KINDS: dict[str, tuple[tuple[str, ...], str]] = {
    "package": (("file", "package"), "path"),
    "url": (("file",), "url"),
    "manual": (("file", "how"), ""),
    "generated": (("options",), ""),
}
_Text = Annotated[str, Meta(pattern=r"^[^\n\r]+\Z", description="one line of text")]
_Fraction = Annotated[float, Meta(ge=0, le=1, description="a number from 0 to 1")]
_DIGEST = "sha256:[0-9a-f]{64}|md5:[0-9a-f]{32}"


class DataFile(FileTable, frozen=True):
    """One file of a dataset as it lies in the store, decompressed."""

    role: Literal["reference", "reads"]
    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\Z", description="the name of a file")]
    #: The source of the file: a path in a package, an address, or for a generated file how it was made.
    path: Annotated[str, Meta(pattern=r"^/[^\n\r]+\Z", description="an absolute path")] = ""
    url: Annotated[str, Meta(pattern=r"^https?://[^\s/]+/\S+\Z", description="an address of http or https")] = ""
    #: The checksum of the stored file, and of the published file.
    checksum: Annotated[
        str, Meta(pattern=rf"^({_DIGEST}|{UNPINNED})\Z", description=f"sha256:HEX, md5:HEX or {UNPINNED}")
    ] = UNPINNED
    packed_checksum: Annotated[str, Meta(pattern=rf"^({_DIGEST})\Z", description="sha256:HEX or md5:HEX")] = ""
    why_unpinned: _Text = ""
    bytes_about: Count | None = None  #: bytes of the stored file, to check the free space before
    first_bytes: Count | None = None  #: download at most this number of bytes
    first_reads: Count | None = None  #: keep at most this number of reads
    truncate: Count | None = None  #: keep this number of bases of every read, from its 5' end

    @property
    def source(self) -> str:
        """Where the file is."""
        return self.path or self.url

    @property
    def recipe(self) -> str:
        """Everything that determines the file's content; a stored file with another recipe is replaced."""
        source = without_login(self.source)
        return f"{source} {self.checksum} {self.packed_checksum or None} {self.first_reads} {self.truncate}"


class Expect(FileTable, frozen=True):
    """Facts that are expected of the files of a dataset."""

    reads: Count | None = None  #: of each file
    reads_about: Count | None = None  #: the same, a rounded figure
    read_length: Count | None = None  #: bases
    contigs: Count | None = None
    batch_bases: Count | None = None  #: of an aligner's batch, suitable for the dataset's size
    #: The least fraction of mapped reads: one for all aligners, or by aligner and for "others".
    mapped_fraction_min: _Fraction | Mapping[str, _Fraction] = 0.0

    def mapped_fraction(self, aligner: str) -> float:
        """Return the least fraction of the reads that *aligner* maps.

        It detects a wrong index or wrong reads; it does not judge the aligner.
        """
        least = self.mapped_fraction_min
        return float(least.get(aligner, least["others"]) if isinstance(least, Mapping) else least)

    def facts(self) -> dict[str, Any]:
        """Return the facts that the manifest states, by name."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) != f.default}


#: The least and the greatest value of the options of a generated dataset.
_LIMITS = {
    "genome_size": (10_000, 100_000_000_000),
    "repeat_fraction": (0.0, 0.95),
    "seed": (0, 2**31 - 1),
    "pairs": (1, 2**31 - 1),
    "read_length": (30, 250),
}


class Options(FileTable, frozen=True):
    """The options of a generated dataset; raises ValueError for a value out of range."""

    genome_size: Bytes  #: bases
    repeat_fraction: float
    seed: int
    pairs: int
    read_length: int  #: bases

    def __post_init__(self) -> None:
        for name, (low, high) in _LIMITS.items():
            if not low <= (value := getattr(self, name)) <= high:
                raise ValueError(f"{name} must be from {low} to {high}, not {value}")


class Dataset(FileTable, frozen=True):
    """A dataset as its manifest describes it."""

    name: str
    title: _Text
    kind: Literal["package", "url", "manual", "generated"]
    source: _Text  #: who made the data, and the publication
    files: Annotated[tuple[DataFile, ...], Meta(min_length=1)] = field(default=(), name="file")
    expect: Expect = Expect()
    reference: _Text = ""  #: the dataset with the reference, if this one has only reads
    package: _Text = ""
    how: _Text = ""  #: how to obtain data that cannot be downloaded
    options: Options | None = None  #: the default options of a generated dataset


def without_login(url: str) -> str:
    """Return *url* without user name and password, for messages and records."""
    return re.sub(r"^(https?://)[^/?#]*@", r"\1", url)


def files() -> dict[str, Path]:
    """Return the manifest of each dataset by name, sorted."""
    return paths.data_files("datasets", ".toml")


def load(name: str) -> Dataset:
    """Return the dataset *name*; raises BadInput if it is unknown or its file is invalid."""
    dataset, document = _read(name)
    if other := dataset.reference:
        if other not in files():
            raise document.error(f"reference: no dataset {other!r}", "reference")
        # Only one step, so links between datasets cannot form a cycle.
        if _read(other)[0].reference:
            raise document.error(f"reference: {other!r} has no reference", "reference")
    return dataset


def _read(name: str) -> tuple[Dataset, ParsedFile]:
    """Return the dataset *name* and the document that describes it."""
    known_files = files()
    if name not in known_files:
        raise BadInput(none_such("dataset", name, known_files))
    path = known_files[name]
    document = parse_toml(read_text(path), path)
    return _dataset(document, path), document


def available() -> tuple[list[Dataset], list[BadInput]]:
    """Return all datasets, sorted by name, and the errors of invalid files."""
    datasets, errors = [], []
    for name in files():
        try:
            datasets.append(load(name))
        except BadInput as error:
            errors.append(error)
    return datasets, errors


def parse(text: str, path: Path) -> Dataset:
    """Return the dataset that *text*, the content of *path*, describes; raises BadInput with the line."""
    return _dataset(parse_toml(text, path), path)


def _dataset(document: ParsedFile, path: Path) -> Dataset:
    kind = document.data.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise document.error(f"kind must be one of {', '.join(_KINDS)}", "kind")
    dataset = document.convert(Dataset, name=path.stem)
    _check_keys(document, kind)
    _check_sense(document, dataset)
    return dataset


def _check_keys(document: ParsedFile, kind: str) -> None:
    """Raise BadInput for a key that a manifest of *kind* lacks or does not allow."""
    needed, source = _KINDS[kind]
    foreign = {key for keys, _ in _KINDS.values() for key in keys} - {*needed}
    sources = {key for _, key in _KINDS.values()} - {source}
    places: list[tuple[Where, Iterable[str], set[str]]] = [
        ((), needed, {*foreign, *(["reference"] if kind == "generated" else [])}),
        *((("file", i), [source] if source else [], sources) for i in range(len(document.data.get("file", [])))),
    ]
    for where, required, refused in places:
        table = document.at(where)
        for key in required:
            if key not in table:
                document.problem(f"key '{key}' is missing: the kind {kind} needs it", *where)
        for key in refused & table.keys():
            document.problem(f"unknown key '{key}': the kind {kind} does not have it", *where, key)
    document.refuse_problems()


def _is_url(text: str) -> bool:
    try:
        return bool(urlsplit(text).hostname) and urlsplit(text).port != 0
    except ValueError:
        return False


def _check_sense(document: ParsedFile, dataset: Dataset) -> None:
    """Raise BadInput for keys that are valid alone but contradict each other."""
    files, least = dataset.files, dataset.expect.mapped_fraction_min
    if isinstance(least, Mapping) and "others" not in least:
        raise document.error(
            "expect.mapped_fraction_min: key 'others' is missing", "expect", "mapped_fraction_min"
        )
    for i, file in enumerate(files):
        reason = None
        pinned = file.checksum != UNPINNED or bool(file.packed_checksum)
        if pinned == bool(file.why_unpinned):
            reason = "a file needs 'checksum' or 'packed_checksum', or else 'why_unpinned'"
        elif file.name in [other.name for other in files[:i]]:
            reason = f"two files have the name {file.name!r}"
        elif file.role == "reference" and (file.first_reads or file.truncate):
            reason = "'first_reads' and 'truncate' are for reads"
        elif file.first_bytes and not file.first_reads:
            # A partial file ends anywhere: only a count of reads defines its content.
            reason = "'first_bytes' needs 'first_reads'"
        elif file.url and not _is_url(file.url):
            reason = f"url: {without_login(file.url)!r} names no host, or no port of one"
        if reason:
            raise document.error(reason, "file", i)
    if dataset.kind == "generated":
        return
    references = sum(file.role == "reference" for file in files) + bool(dataset.reference)
    if references != 1:
        raise document.error(f"{references} references: name exactly one, as a file or a dataset")
    if len(files) - sum(file.role == "reference" for file in files) > 2:
        raise document.error("more than two files of reads")
