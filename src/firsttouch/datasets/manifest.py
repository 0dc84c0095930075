# SPDX-License-Identifier: Apache-2.0
"""The manifest: one TOML file per dataset, validated when it is read.

The folder is FIRSTTOUCH_DATASETS, or datasets/ of the checkout that the package runs from.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from firsttouch import paths
from firsttouch.documents import Document, parse_toml, read_text
from firsttouch.errors import BadInput, Missing

UNPINNED = "unpinned"
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*\Z")

#: kind of source -> (keys that its manifest must have, the key of a file that says where it is from).
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
    # One for every aligner, or a table of aligners and "others". (A keyword for numbers holds for numbers only.)
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


@dataclass(frozen=True)
class DataFile:
    """One file of a dataset as it lies in the store (always unpacked)."""

    role: str  #: "reference" or "reads"
    name: str
    source: str = ""  #: where it is from: a path, a URL, or a file of the parent dataset
    checksum: str = UNPINNED  #: "sha256:HEX" or "md5:HEX" of the stored file, or UNPINNED
    packed_checksum: str | None = None  #: the same of the file as it is downloaded
    why_unpinned: str | None = None
    bytes_about: int | None = None  #: bytes of the stored file, to see beforehand whether there is room
    first_bytes: int | None = None  #: download no more than so many bytes
    first_reads: int | None = None  #: keep no more than so many reads
    truncate: int | None = None  #: keep so many bases of every read, from its 5' end

    @property
    def recipe(self) -> str:
        """All that decides the file's content: a stored file made by another recipe is not this one."""
        source = without_login(self.source)
        return f"{source} {self.checksum} {self.packed_checksum} {self.first_reads} {self.truncate}"


@dataclass(frozen=True)
class Dataset:
    """A dataset as its manifest describes it."""

    name: str
    title: str
    kind: str  #: package, url, manual, derived or generated
    source: str  #: who made the data and where that is published
    files: tuple[DataFile, ...]
    #: Facts that checks compare with: reads (of each file), reads_about (a rounded figure), read_length (bases),
    #: contigs, batch_bases (of an aligner's batch, suited to the set's size) and mapped_fraction_min (see the
    #: function of that name).
    expect: dict[str, Any]
    reference: str | None = None  #: the dataset that holds the reference, where this one holds only reads
    package: str | None = None
    how: str | None = None  #: how to obtain what cannot be downloaded
    parent: str | None = None  #: the dataset that this one is derived from
    options: dict[str, Any] = field(default_factory=dict)  #: what a generated one can be asked for


def without_login(url: str) -> str:
    """Return *url* without a user's name and password, as messages and records show it."""
    return re.sub(r"^(https?://)[^/?#]*@", r"\1", url)


def mapped_fraction_min(expect: Mapping[str, Any], aligner: str) -> float:
    """Return the part of the reads (0 to 1) that *aligner* maps at least, after a dataset's *expect*.

    It tells another genome's index or reads from the right ones, and is no judgement of the aligner.
    """
    least = expect.get("mapped_fraction_min", 0.0)
    return float(least.get(aligner, least["others"]) if isinstance(least, Mapping) else least)


def folder() -> Path:
    """Return the manifest's folder; raises Missing where there is none."""
    named = os.environ.get("FIRSTTOUCH_DATASETS")
    found = Path(named) if named else paths.ROOT / "datasets"
    if not found.is_dir():
        raise Missing(f"no dataset manifest at {found}: set FIRSTTOUCH_DATASETS to the folder of the TOML files")
    return found


def load(name: str) -> Dataset:
    """Return the dataset *name*; raises BadInput where it is unknown or its file is wrong."""
    dataset, document = _read(name)
    for key in ("reference", "parent"):
        other = getattr(dataset, key)
        if other is None:
            continue
        if not (folder() / f"{other}.toml").is_file():
            raise document.error(f"{key}: no dataset {other!r}", key)
        linked = _read(other)[0]
        # One step only, so that no chain of datasets can come back to where it began.
        if key == "reference" and (linked.reference or linked.kind == "derived"):
            raise document.error(f"reference: {other!r} holds no reference of its own", key)
        if key == "parent" and linked.kind in ("derived", "generated"):
            raise document.error(f"parent: {other!r} is itself {linked.kind}", key)
        if key == "parent" and (unknown := {f.source for f in dataset.files} - {f.name for f in linked.files}):
            raise document.error(f"of: {other!r} has no file {min(unknown)!r}", key)
    return dataset


def _read(name: str) -> tuple[Dataset, Document]:
    """Return the dataset *name* and the document that describes it."""
    where = folder()
    path = where / f"{name}.toml"
    if not _NAME.match(name) or not path.is_file():
        known = ", ".join(sorted(p.stem for p in where.glob("*.toml"))) or "none"
        raise BadInput(f"no dataset {name!r} in {where}: known are {known}")
    document = parse_toml(read_text(path), path)
    return _dataset(document, path), document


def available() -> tuple[list[Dataset], list[BadInput]]:
    """Return all datasets, by name, and what is wrong with the files that describe none."""
    datasets, errors = [], []
    for path in sorted(folder().glob("*.toml")):
        try:
            datasets.append(load(path.stem))
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
    sources = {entry_key for _, entry_key in _KINDS.values() if entry_key} - {source_key}
    properties: dict[str, Any] = {
        "title": _TEXT,
        "kind": {"enum": list(_KINDS)},
        "source": _TEXT,
        "expect": {"type": "object", "properties": _EXPECT, "additionalProperties": False},
    }
    required = ["title", "kind", "source", *keys]
    for key in keys:
        properties[key] = _TEXT
    if kind == "generated":
        properties["options"] = {
            "type": "object",
            "properties": _OPTIONS,
            "required": list(_OPTIONS),
            "additionalProperties": False,
        }
    else:
        properties["reference"] = _TEXT
        properties["file"] = {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "properties": {key: value for key, value in _FILE.items() if key not in sources},
                "required": ["role", "name", *([source_key] if source_key else [])],
                "additionalProperties": False,
            },
        }
        required.append("file")
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _check_schema(document: Document) -> None:
    """Raise BadInput where *document* has a key or a value that a manifest of its kind cannot have."""
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
    """Raise BadInput where the keys are right one by one but say nothing sensible together."""
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
