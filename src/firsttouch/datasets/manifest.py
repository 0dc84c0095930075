# SPDX-License-Identifier: Apache-2.0
"""Manifests of datasets: one TOML file each, validated when it is read.

They lie in the folders ``paths.folders("datasets")``; the first folder that has a name wins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from firsttouch import paths
from firsttouch.documents import Document, parse_toml, read_text, table_schema
from firsttouch.errors import BadInput, none_such

UNPINNED = "unpinned"

#: kind of source -> (required keys of its manifest, the key of a file that names its source)
_KINDS: dict[str, tuple[tuple[str, ...], str | None]] = {
    "package": (("package",), "path"),
    "url": ((), "url"),
    "manual": (("how",), None),
    "derived": (("parent",), "of"),
    "generated": (("options",), None),
}
_TEXT = {"type": "string", "minLength": 1, "pattern": r"^[^\n\r]+$"}
_COUNT = {"type": "integer", "minimum": 1}
_FRACTION = {"type": "number", "minimum": 0, "maximum": 1}
_DIGEST = "sha256:[0-9a-f]{64}|md5:[0-9a-f]{32}"
_EXPECT = {
    "reads": _COUNT,
    "reads_about": _COUNT,
    "read_length": _COUNT,
    "contigs": _COUNT,
    "batch_bases": _COUNT,
    # One number for all aligners, or a table of aligners with "others". (JSON schema applies a keyword for numbers
    # to numbers only.)
    "mapped_fraction_min": _FRACTION
    | {"type": ["number", "object"], "required": ["others"], "additionalProperties": _FRACTION},
}
_FILE: dict[str, Any] = {
    "role": {"enum": ["reference", "reads"]},
    "name": {"type": "string", "pattern": r"^[A-Za-z0-9][A-Za-z0-9._-]*\Z"},
    "checksum": {"type": "string", "pattern": rf"^({_DIGEST}|{UNPINNED})\Z"},
    "packed_checksum": {"type": "string", "pattern": rf"^({_DIGEST})\Z"},
    "why_unpinned": _TEXT,
    "bytes_about": _COUNT,
    "first_bytes": _COUNT,
    "first_reads": _COUNT,
    "truncate": _COUNT,
    "path": {"type": "string", "pattern": r"^/[^\n\r]+\Z"},
    "url": {"type": "string", "pattern": r"^https?://[^\s/]+/\S+\Z"},
    "of": _TEXT,
}
_OPTIONS = {
    "genome_size": {"type": ["integer", "string"]},
    "repeat_fraction": {"type": "number"},
    "seed": {"type": "integer"},
    "pairs": {"type": "integer"},
    "read_length": {"type": "integer"},
}


class DataFile(NamedTuple):
    """One file of a dataset as it lies in the store, decompressed."""

    role: str  #: "reference" or "reads"
    name: str
    source: str = ""  #: a path, a URL, or the name of a file of the parent dataset
    checksum: str = UNPINNED  #: "sha256:HEX" or "md5:HEX" of the stored file, or UNPINNED
    packed_checksum: str | None = None  #: the same of the file as it is published
    why_unpinned: str | None = None
    bytes_about: int | None = None  #: bytes of the stored file, to check the free space before
    first_bytes: int | None = None  #: download at most this number of bytes
    first_reads: int | None = None  #: keep at most this number of reads
    truncate: int | None = None  #: keep this number of bases of every read, from its 5' end

    @property
    def recipe(self) -> str:
        """All that determines the file's content; a stored file with another recipe is another file."""
        source = without_login(self.source)
        return f"{source} {self.checksum} {self.packed_checksum} {self.first_reads} {self.truncate}"


@dataclass(frozen=True)
class Dataset:
    """A dataset as its manifest describes it."""

    name: str
    title: str
    kind: str  #: package, url, manual, derived or generated
    source: str  #: who made the data, and the publication
    files: tuple[DataFile, ...]
    #: Expected facts: reads (of each file), reads_about (a rounded figure), read_length (bases), contigs,
    #: batch_bases (of an aligner's batch, suited to the dataset's size), mapped_fraction_min (see that function).
    expect: dict[str, Any]
    reference: str | None = None  #: the dataset with the reference, if this one has only reads
    package: str | None = None
    how: str | None = None  #: how to obtain data that cannot be downloaded
    parent: str | None = None  #: the dataset from which this one is derived
    options: dict[str, Any] = field(default_factory=dict)  #: the default options of a generated dataset


def without_login(url: str) -> str:
    """Return *url* without user name and password, for messages and records."""
    return re.sub(r"^(https?://)[^/?#]*@", r"\1", url)


def mapped_fraction_min(expect: Mapping[str, Any], aligner: str) -> float:
    """Return the least fraction of the reads that *aligner* maps, by a dataset's *expect*.

    It detects an index or reads of another genome; it does not judge the aligner.
    """
    least = expect.get("mapped_fraction_min", 0.0)
    return float(least.get(aligner, least["others"]) if isinstance(least, Mapping) else least)


def files() -> dict[str, Path]:
    """Return the manifest of each dataset by name, sorted."""
    return paths.data_files("datasets", ".toml")


def load(name: str) -> Dataset:
    """Return the dataset *name*; raises BadInput if it is unknown or its file is invalid."""
    dataset, document = _read(name)
    for key in ("reference", "parent"):
        other = getattr(dataset, key)
        if other is None:
            continue
        if other not in files():
            raise document.error(f"{key}: no dataset {other!r}", key)
        linked = _read(other)[0]
        # One step only, so that links between datasets cannot form a cycle.
        if key == "reference" and (linked.reference or linked.kind == "derived"):
            raise document.error(f"reference: {other!r} has no reference", key)
        if key == "parent" and linked.kind in ("derived", "generated"):
            raise document.error(f"parent: {other!r} is itself {linked.kind}", key)
        if key == "parent" and (unknown := {f.source for f in dataset.files} - {f.name for f in linked.files}):
            raise document.error(f"of: {other!r} has no file {min(unknown)!r}", key)
    return dataset


def _read(name: str) -> tuple[Dataset, Document]:
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


def _dataset(document: Document, path: Path) -> Dataset:
    data = document.data
    _check_schema(document)
    kind = data["kind"]
    source_key = _KINDS[kind][1]
    files = []
    for entry in data.get("file", []):
        values = dict(entry)
        if source_key:
            values["source"] = values.pop(source_key)
        files.append(DataFile(**values))
    _check_sense(document, files)
    rest = {key: value for key, value in data.items() if key not in ("file", "expect")}
    return Dataset(name=path.stem, files=tuple(files), expect=data.get("expect", {}), **rest)


def _schema(kind: str) -> dict[str, Any]:
    """Return the JSON schema of a manifest of *kind*."""
    keys, source_key = _KINDS[kind]
    required: dict[str, Any] = {"title": _TEXT, "kind": {"enum": list(_KINDS)}, "source": _TEXT}
    required |= dict.fromkeys(keys, _TEXT)
    optional: dict[str, Any] = {"expect": table_schema({}, _EXPECT)}
    if kind == "generated":
        return table_schema(required | {"options": table_schema(_OPTIONS, {})}, optional)
    of_file = ["role", "name", *([source_key] if source_key else [])]
    of_other_kinds = {key for _, key in _KINDS.values() if key} - {source_key}
    file = table_schema(
        {key: _FILE[key] for key in of_file},
        {key: schema for key, schema in _FILE.items() if key not in of_other_kinds.union(of_file)},
    )
    required["file"] = {"type": "array", "minItems": 1, "items": file}
    return table_schema(required, optional | {"reference": _TEXT})


def _check_schema(document: Document) -> None:
    """Raise BadInput for a key or a value that a manifest of its kind cannot have."""
    kind = document.data.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise document.error(f"kind must be one of {', '.join(_KINDS)}", "kind")
    document.check(_schema(kind))


def _is_url(text: str) -> bool:
    try:
        return bool(urlsplit(text).hostname) and urlsplit(text).port != 0
    except ValueError:
        return False


def _check_sense(document: Document, files: list[DataFile]) -> None:
    """Raise BadInput for keys that are valid alone but contradict each other."""
    for i, file in enumerate(files):
        reason = None
        pinned = file.checksum != UNPINNED or file.packed_checksum is not None
        if pinned == bool(file.why_unpinned):
            reason = "a file needs 'checksum' or 'packed_checksum', or else 'why_unpinned'"
        elif file.name in [other.name for other in files[:i]]:
            reason = f"two files have the name {file.name!r}"
        elif file.role == "reference" and (file.first_reads or file.truncate):
            reason = "'first_reads' and 'truncate' are for reads"
        elif file.first_bytes and not file.first_reads:
            # The end of a partial file is arbitrary: only a count of reads makes it a definite set.
            reason = "'first_bytes' needs 'first_reads'"
        elif document.data["kind"] == "url" and not _is_url(file.source):
            reason = f"url: {without_login(file.source)!r} names no host, or no port of one"
        if reason:
            raise document.error(reason, "file", i)
    if document.data["kind"] == "generated":
        return
    references = sum(file.role == "reference" for file in files) + ("reference" in document.data)
    if references != 1:
        raise document.error(f"{references} references: name one, as a file or a dataset")
    if len(files) - sum(file.role == "reference" for file in files) > 2:
        raise document.error("more than two files of reads")
