# SPDX-License-Identifier: Apache-2.0
"""Processors as data: a TOML file per family, with its memory, its models, and the share that reads reach."""

from __future__ import annotations

import functools
import re
import statistics
import sys
from typing import Annotated

from msgspec import Meta, Struct

from firsttouch import documents, paths
from firsttouch.documents import Count, Regex, Share, Table, Text, Transfers
from firsttouch.errors import BadInput, one_line


class Memory(Table, frozen=True):
    """The memory that a package can drive; LPDDR has neither *channels* of 64 bits nor their rate."""

    type: Text
    source: Text
    #: Channels of a package, and the highest transfers per second of each.
    channels: Count | None = None
    transfer_rate: Transfers | None = None


class Model(Table, frozen=True):
    """Models of a family whose name matches *pattern*.

    *cores* and *last_level_caches* are those of a package, *numa_nodes* the numbers that the firmware offers.
    *read_share* is the median share of the theoretical bandwidth that reads by all PUs reach (*measured*: its
    source).
    """

    pattern: Regex
    cores: Count | None = None
    threads: Count | None = None
    numa_nodes: tuple[Count, ...] = ()
    last_level_caches: Count | None = None
    source: Text = ""
    read_share: Share | None = None
    measured: Text = ""


class Family(Table, frozen=True):
    """A family of processors with the same memory; the first of *models* that matches describes a processor."""

    name: Text
    description: Text
    microarchitecture: Text
    memory: Memory
    models: Annotated[tuple[Model, ...], Meta(min_length=1)]


class Processor(Struct, frozen=True):
    """A *model* of a *family*."""

    family: Family
    model: Model


class ReadShare(Struct, frozen=True):
    """The share of theory (a fraction) that reads reach on hosts of the same model (*is_own*), or of its kin."""

    value: float
    is_own: bool
    source: str


@functools.cache
def families() -> tuple[Family, ...]:
    """Return all families. A wrong file of the site or the user is reported on standard error and left out."""
    parsed = []
    for name, file in sorted(paths.data_files("processors", ".toml").items()):
        try:
            parsed.append(documents.parse_toml(documents.read_text(file), file).convert(Family, name=name))
        except BadInput as error:
            if file.is_relative_to(paths.SYSTEMS):
                raise
            print(one_line(f"firsttouch: this file is ignored: {error}"), file=sys.stderr)
    return tuple(parsed)


def find(name: str) -> Processor | None:
    """Return the processor with this *name*, None if no file describes it.

    A name is that in /proc/cpuinfo or a system's file. For Arm it is ``MIDR 0x…``, and the board's vendor follows.
    """
    return next((Processor(f, m) for f in families() for m in f.models if re.search(m.pattern, name)), None)


def read_share(processor: Processor) -> ReadShare | None:
    """Return the share that reads reach on a *processor*: its model's, or its kin's; None if none was measured.

    Kin are the models of the same microarchitecture, in whatever family.
    """
    model = processor.model
    if model.read_share is not None:
        return ReadShare(model.read_share, True, model.measured)
    kin = [
        m.read_share
        for family in families()
        for m in family.models
        if family.microarchitecture == processor.family.microarchitecture and m.read_share is not None
    ]
    if not kin:
        return None
    models = f"{len(kin)} model{'s' * (len(kin) > 1)} of {processor.family.microarchitecture}"
    return ReadShare(statistics.median(kin), False, models)
