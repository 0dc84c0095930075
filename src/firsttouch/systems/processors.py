# SPDX-License-Identifier: Apache-2.0
"""Processors as data: a TOML file per family, with its memory, its models, and the share that reads reach."""

from __future__ import annotations

import functools
import json
import re
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from firsttouch import documents, paths
from firsttouch.documents import Count, FileTable, Percentage, Regex, Text, Transfers
from firsttouch.errors import BadInput, one_line
from firsttouch.host.configuration import MODULE


class PackageMemory(FileTable, frozen=True):
    """The memory of a package. LPDDR has neither *channels* of 64 bits nor their rate."""

    type: Text
    source: Text
    #: Channels of a package, and the highest transfers per second of each.
    channels: Count | None = None
    transfer_rate: Transfers | None = None


class Model(FileTable, frozen=True):
    """Models of a family whose name matches *pattern*, ignoring case: new Xeons use capitals.

    *cores* and *last_level_caches* are per package, *numa_nodes* are the numbers that the firmware offers.
    *read_share* is the median share of the theoretical bandwidth that reads by all PUs reach (*measured*: its
    source), and *tolerance* how far a good host may be below it (None: as for other models).
    """

    pattern: Regex
    cores: Count | None = None
    threads: Count | None = None
    numa_nodes: tuple[Count, ...] = ()
    last_level_caches: Count | None = None
    source: Text = ""
    read_share: Percentage | None = None
    tolerance: Percentage | None = None
    measured: Text = ""

    def describes(self, name: str) -> bool:
        """Return whether these are models with this *name*."""
        return re.search(self.pattern, name, re.IGNORECASE) is not None


class Family(FileTable, frozen=True):
    """A family of processors with the same memory; the first matching one of *models* describes a processor."""

    name: Text
    description: Text
    microarchitecture: Text
    memory: PackageMemory
    models: Annotated[tuple[Model, ...], Meta(min_length=1)]


class Processor(Struct, frozen=True):
    """A *model* of a *family*."""

    family: Family
    model: Model


class ReadShare(Struct, frozen=True):
    """The share of theory (a fraction) that reads reach on hosts of this model (*is_own*) or related ones."""

    value: float
    is_own: bool
    source: str
    tolerance: float | None = None


@functools.cache
def families() -> tuple[Family, ...]:
    """Return all families, the user's and the site's first.

    An invalid file of the site or the user is reported on standard error and left out.
    """
    parsed = []
    files = paths.data_files("processors", ".toml").values()
    for file in sorted(files, key=lambda f: (f.is_relative_to(paths.SYSTEMS), f.name)):
        try:
            parsed.append(parse(documents.read_text(file), file))
        except BadInput as error:
            if file.is_relative_to(paths.SYSTEMS):
                raise
            print(one_line(f"firsttouch: this file is ignored: {error}"), file=sys.stderr)
    return tuple(parsed)


def parse(text: str, file: Path) -> Family:
    """Return the family that the *text* of a *file* describes; raises BadInput with its line for a wrong one."""
    return documents.parse_toml(text, file).convert(Family, name=file.stem)


def to_toml(family: Family) -> str:
    """Return the text of a file that describes a *family*."""

    def lines(table: Struct, **texts: str) -> list[str]:
        fields = {name: value for name, value in {**asdict(table), **texts}.items() if value not in {None, "", ()}}
        return [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items()]

    rate = family.memory.transfer_rate
    text = [*lines(family, name="", memory="", models=""), "", "[memory]"]
    text += lines(family.memory, transfer_rate=f"{rate / 1e6:g} MT/s" if rate else "")
    for model in family.models:
        shares = {name: getattr(model, name) for name in ("read_share", "tolerance")}
        text += ["", "[[models]]"]
        text += lines(model, **{name: f"{100 * share:.1f} %" for name, share in shares.items() if share})
    return "\n".join(text) + "\n"


def find(name: str) -> Processor | None:
    """Return the processor with this *name*, None if no file describes it.

    The name is as in /proc/cpuinfo or a system's file; on Arm ``MIDR 0x…`` and the board's vendor.
    """
    return next((Processor(f, m) for f in families() for m in f.models if m.describes(name)), None)


def read_share(processor: Processor) -> ReadShare | None:
    """Return the share that reads reach on a *processor* or related models; None if none was measured.

    Related models have the same microarchitecture, in any family.
    """
    model = processor.model
    if model.read_share is not None:
        return ReadShare(model.read_share, True, model.measured, model.tolerance)
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


def pattern_of(name: str) -> Regex:
    """Return the pattern of a processor's *name*; on Arm it includes the vendor of the board."""
    model = name if name.startswith("MIDR") else name.rpartition(", ")[0]
    escaped = re.escape(model).replace(r"\ ", " ").replace(r"\-", "-")
    return Regex(f"^{escaped}(,|$)")


def family_of(name: str, settings: Mapping[str, str], model: Model) -> Family:
    """Return the family of the processor with this *name* and this *model* only.

    *settings* are the configuration of a host with it.
    """
    if processor := find(name):
        learnt_fields = {
            field: getattr(model, field) for field in ("pattern", "read_share", "tolerance", "measured")
        }
        models = (replace(processor.model, **learnt_fields),)
        return replace(processor.family, description=settings["cpu.model"], models=models)
    modules = (text.split() for key, text in settings.items() if key.startswith(MODULE))
    kind = next((words[2] for words in modules if len(words) > 2), "unknown").split("-")[0].rstrip(",")
    memory = PackageMemory(kind, "the modules of hosts of this site")
    return Family("", settings["cpu.model"], settings["cpu.model"], memory, (model,))
