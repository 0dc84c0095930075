# SPDX-License-Identifier: Apache-2.0
"""Indexes: built once per aligner, version and reference, and kept beside the datasets."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

from firsttouch import beside
from firsttouch.aligners import Aligner
from firsttouch.errors import BadInput


def digest(file: Path) -> str:
    """Return a file's SHA-256 in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def built(aligner: Aligner, reference: Path, store: Path, *, say: Callable[[str], None] = print) -> Path:
    """Return the prefix of *aligner*'s index of the FASTA file *reference* below *store*; build it if need be.

    The folder's name holds the aligner's version and the reference's checksum, so that an index of another
    genome or program is never taken. Two at once build it once; a killed build leaves nothing that counts. An
    index that lacks a file is built again.
    """
    name = f"{aligner.name}-{aligner.version()}-{digest(reference)[:16]}"
    folder = store / name
    prefix = folder / "index"
    store.mkdir(parents=True, exist_ok=True)
    with (store / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir():
            try:
                aligner.index_bytes(prefix)
            except BadInput as error:
                say(f"building the index again, as it is damaged: {error}")
                shutil.rmtree(folder)
            else:
                return prefix
        say(f"building the index of {reference.name} for {aligner.name}")
        with beside.replacing(folder) as partial:
            partial.mkdir()
            aligner.build_index(reference, partial / "index", partial / "build.log")
            aligner.index_bytes(partial / "index")
    return prefix
