# SPDX-License-Identifier: Apache-2.0
"""Advice that was stored: what ``firsttouch advise`` wrote, found again by a report."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jsonschema

from firsttouch import beside
from firsttouch.errors import BadInput
from firsttouch.guideline.said import DOCUMENT, SCHEMA

#: How the name of a file with an advice ends.
SUFFIX = "advice.json"

_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}
_INTERVAL = {
    "type": ["object", "null"],
    "required": ["expected", "low", "high"],
    "additionalProperties": {"type": "number"},
}
_SCENARIO: dict[str, Any] = {
    "name": _TEXT,
    "state": {"enum": ["recommended", "dropped", "failed", "infeasible"]},
    "reason": _TEXT,
    "trials": _COUNT,
    "seconds": _INTERVAL,
}
_DOCUMENT: dict[str, Any] = {
    **dict.fromkeys(("host", "system", "time", "aligner", "recommended", "default", "stop"), _TEXT),
    "dataset": {"type": ["string", "null"]},
    "gain": _INTERVAL,
    "predicted_s": _INTERVAL,
    "scenarios": {
        "type": "array",
        "items": {"type": "object", "required": list(_SCENARIO), "properties": _SCENARIO},
    },
}
#: What a report needs of the document (see :func:`firsttouch.guideline.said.document`).
_FORM = {"type": "object", "required": list(_DOCUMENT), "properties": _DOCUMENT}


def find(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """Return every advice among *paths* and in the folders among them, files ``*advice.json``, in their order.

    Raises BadInput, naming the file, where such a file holds something else.
    """
    found = []
    for path in paths:
        files = sorted(path.rglob(f"*{SUFFIX}")) if path.is_dir() else [path] if path.name.endswith(SUFFIX) else []
        found += [read(file) for file in files]
    return found


def read(file: Path) -> dict[str, Any]:
    """Return the document of one file; raises BadInput where it is none."""
    again = f"write it again with `firsttouch advise … --save {file.name}`"
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", file=file) from error
    except ValueError as error:
        raise BadInput(f"no advice, as it is not JSON: {again}", file=file) from error
    if not isinstance(data, dict) or data.get("document") != DOCUMENT:
        raise BadInput(f"no advice: {again}, or give the file another name", file=file)
    if data.get("schema") != SCHEMA:
        raise BadInput(f"advice of schema {data.get('schema')!r}, this version reads {SCHEMA}: {again}", file=file)
    for wrong in jsonschema.Draft202012Validator(_FORM).iter_errors(data):
        where = ".".join(map(str, wrong.absolute_path)) or "the document"
        raise BadInput(f"no advice, {where}: {wrong.message}: {again}", file=file)
    return data


def write(document: dict[str, Any], file: Path) -> None:
    """Write an advice to *file*, beside it first."""
    try:
        beside.write(file, json.dumps(document, indent=2) + "\n")
    except OSError as error:
        raise BadInput(f"cannot be written: {error.strerror}", file=file) from error


def check(file: Path) -> None:
    """Raise BadInput where an advice could not be written to *file*, before any long work."""
    if not file.name.endswith(SUFFIX):
        raise BadInput(f"the name must end in {SUFFIX}, so that a report finds it", file=file)
    if not file.parent.is_dir():
        raise BadInput("its folder does not exist", file=file)
    if file.is_dir():
        raise BadInput("it is a folder", file=file)
