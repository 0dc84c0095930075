# SPDX-License-Identifier: Apache-2.0
"""Differences between the configurations of hosts, and changes of a host's configuration.

The majority's value of each setting is the golden configuration. Values that differ on every host by nature (the
UUID of a root file system, addresses, the host's own name) are left out before the comparison.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from firsttouch.errors import first_of
from firsttouch.host.configuration import MODULE
from firsttouch.host.host_lists import natural
from firsttouch.host.memory_modules import channel_of, without_channel
from firsttouch.records.cases import by_key
from firsttouch.records.schema import GAP, Record, to_frame

if TYPE_CHECKING:
    import polars as pl

CHECK, METRIC = "configuration", "settings"
#: The columns of a table of records that are read.
READ = ("check", "metric", "status", "system", "host", "time", "parameters")
#: The value of a memory module that a host lacks.
ABSENT = "absent"
#: The most memory modules and settings in a text, and the most hosts of an update that are searched for them.
_NAMED, _LOOKED_AT = 3, 200
#: The most slots in the text of a cause.
_NAMED_SLOTS = 16
#: The least share of each group of a divided fleet that a setting must distinguish.
_TELLS = 0.8
#: Parameters of the kernel's command line that differ on every host, or repeat the kernel's release.
_OF_HOST = re.compile(
    r"(root|resume|rd\.(lvm|luks|md|iscsi)\.[a-z.]+|ip|BOOTIF|hostname|systemd\.(hostname|machine_id)|nfsroot|netroot"
    r"|BOOT_IMAGE|initrd|ds)=.*"
)
_WORD = re.compile(r"[\w-]+(\.[\w-]+)*")
_UUID = re.compile(r"\b[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_MAC = re.compile(r"\b([0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}\b")
_ADDRESS = re.compile(r"\b(\d{1,3}\.){3}\d{1,3}\b")


class Configuration(Struct, frozen=True):
    """The *settings* of a host at a *time* (ms since 1970); memory modules were read from *source*.

    *changes* are all changes of its settings until then, as text, with times.
    """

    time: int
    settings: Mapping[str, str]
    source: str = ""
    changes: tuple[tuple[int, str], ...] = ()


class Deviation(Struct, frozen=True):
    """A *setting* whose *value* on some *hosts* is not the *golden* one, which *siblings* of *of* hosts have."""

    setting: str
    value: str
    golden: str
    hosts: tuple[str, ...]
    siblings: int
    of: int

    @property
    def slot(self) -> str:
        """The slot of a memory module, "" for another setting."""
        return self.setting.removeprefix(MODULE) if self.setting.startswith(MODULE) else ""

    def text(self) -> str:
        """Return the setting with both values; of a command line only the words that differ."""
        if self.setting != "kernel.command_line":
            return f"{self.setting} {self.value} (most: {self.golden})"
        has, most = Counter(self.value.split()), Counter(self.golden.split())
        sides = {"with": has - most, "without": most - has}
        texts = [f"{side} {' '.join(words.elements())}" for side, words in sides.items() if words]
        return f"{self.setting}: {', '.join(texts) or 'the same words in another order'}"


class Drift(Struct, frozen=True):
    """The *golden* configuration of some *hosts*, and the *deviations* from it."""

    hosts: int
    golden: Mapping[str, str]
    deviations: Sequence[Deviation]

    def by_hosts(self) -> dict[tuple[str, ...], list[Deviation]]:
        """Return the deviations by the hosts that share them, the fewest hosts first.

        Settings that deviate on the same hosts cannot be distinguished by their effects.
        """
        shared = by_key(self.deviations, lambda deviation: deviation.hosts)
        return dict(sorted(shared.items(), key=lambda item: (len(item[0]), [natural(host) for host in item[0]])))

    def modules(self, host: str, passes: Callable[[str], bool]) -> tuple[dict[str, str], list[Deviation]]:
        """Return the usual memory modules by slot, and the deviations of a *host* in these slots.

        Deviations that a host that *passes* shares are left out.
        """
        modules = {
            name.removeprefix(MODULE): text for name, text in self.golden.items() if name.startswith(MODULE)
        }
        usual = {slot: text for slot, text in modules.items() if text != ABSENT}
        of_host = [d for d in self.deviations if d.slot in usual and host in d.hosts]
        return usual, [d for d in of_host if not any(map(passes, d.hosts))]


# ----------------------------------------------------------------------
# From records to configurations


def configured(source: pl.DataFrame | Iterable[Record]) -> pl.DataFrame:
    """Return the rows with configurations of hosts among records, or in a table of them."""
    import polars as pl  # noqa: PLC0415 - a large import

    if not isinstance(source, pl.DataFrame):
        source = to_frame(record for record in source if record.check == CHECK)
    return source.filter(check=CHECK, metric=METRIC, status="valid").select(READ)


def latest(source: pl.DataFrame | Iterable[Record]) -> dict[str, Configuration]:
    """Return the newest configuration of each host, with the time of its first record.

    Changes of values that :func:`comparable` leaves out are ignored.
    """
    import polars as pl  # noqa: PLC0415 - a large import

    rows = configured(source).select("host", pl.col("time").dt.epoch("ms"), "parameters").sort(pl.all())
    is_new = pl.col("parameters") != pl.col("parameters").shift().over("host")
    newest: dict[str, Configuration] = {}
    for host, time, text in rows.filter(is_new.fill_null(value=True)).iter_rows():
        now, before = Configuration(time, *_read(text)), newest.get(host)
        if before is None:
            newest[host] = now
        elif apart := differences(host, before, now):
            changed = ((time, f"{name} {a} -> {b}") for name, (a, b) in apart.items())
            newest[host] = replace(now, changes=(*before.changes, *changed))
        else:
            # A value that can be read only now, or could be read only before, is not a change.
            settings = {**_without_modules(before.settings), **now.settings}
            newest[host] = replace(before, settings=settings, source=now.source)
    return newest


@lru_cache(maxsize=1 << 14)
def _read(text: str) -> tuple[Mapping[str, str], str]:
    """Return the settings in a record's parameters, and the source of its memory modules.

    Values that are not texts are left out.
    """
    parameters = json.loads(text)
    settings, provenance = (parameters.get(name) for name in ("settings", "provenance"))
    items = settings.items() if isinstance(settings, Mapping) else ()
    source = provenance.get("memory.modules") if isinstance(provenance, Mapping) else ""
    return {k: v for k, v in items if isinstance(v, str) and v}, source if isinstance(source, str) else ""


# ----------------------------------------------------------------------
# Differences


def comparable(host: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the *settings* of a *host* without the ones that differ on every host by nature."""
    short = host.partition(".")[0] or host

    def without_host(text: str) -> str:
        return _WORD.sub(lambda word: "HOST" if word[0] in {host, short} else word[0], text)

    return {name: _shared(name, without_host(text) if short in text else text) for name, text in settings.items()}


@lru_cache(maxsize=1 << 14)
def _shared(name: str, text: str) -> str:
    if name.startswith(MODULE):
        return text
    if name == "kernel.command_line":
        text = " ".join(word for word in text.split() if not _OF_HOST.fullmatch(word))
    for pattern, instead in ((_UUID, "UUID"), (_MAC, "MAC"), (_ADDRESS, "ADDRESS")):
        text = pattern.sub(instead, text)
    return text


def _without_modules(settings: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in settings.items() if not name.startswith(MODULE)}


def differences(host: str, old: Configuration, new: Configuration) -> dict[str, tuple[str, str]]:
    """Return the settings in which two configurations of a host differ, with both values.

    A setting that one of them lacks is not a difference, except a memory module if both have the same source of
    modules.
    """
    a, b = comparable(host, old.settings), comparable(host, new.settings)
    if old.source == new.source:
        slots = {name: ABSENT for name in a.keys() | b.keys() if name.startswith(MODULE)}
        a, b = slots | a, slots | b
    else:
        a = _without_modules(a)
    return {name: (a[name], b[name]) for name in sorted(a.keys() & b.keys()) if a[name] != b[name]}


def changed_settings(
    configurations: Mapping[str, Configuration], hosts: Sequence[str], after: int, before: int
) -> list[str]:
    """Return the settings that changed on most *hosts* after one session and until a later one (ms since 1970)."""
    of_hosts = [configurations[host] for host in hosts if host in configurations][:_LOOKED_AT]
    # A new configuration is recorded in the first session that has it.
    counts = Counter(text for c in of_hosts for time, text in c.changes if after < time <= before + GAP)
    common = [text for text, count in sorted(counts.items()) if 2 * count > len(of_hosts)]
    return [*common[:_NAMED], *([f"{len(common) - _NAMED} more settings"] if len(common) > _NAMED else [])]


def drift(configurations: Mapping[str, Configuration]) -> Drift:
    """Return the golden configuration of hosts and all deviations from it.

    The golden value of a setting is the most frequent one (of several, the first). A setting without a majority
    whose values outnumber half of the hosts is left out. Hosts that cannot read a setting are ignored, except for
    memory modules: hosts with the most frequent source that lack a module have the value :data:`ABSENT`.
    """
    sources = Counter(c.source for c in configurations.values() if c.source)
    source = max(sorted(sources), key=sources.__getitem__, default="")
    with_modules = [c.settings for c in configurations.values() if c.source == source]
    slots = {name: ABSENT for settings in with_modules for name in settings if name.startswith(MODULE)}
    values: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for host, c in configurations.items():
        settings = {**slots, **c.settings} if c.source == source else _without_modules(c.settings)
        for name, text in comparable(host, settings).items():
            values[name][text].append(host)
    golden: dict[str, str] = {}
    deviations: list[Deviation] = []
    for name, by_value in sorted(values.items()):
        count = sum(map(len, by_value.values()))
        usual = max(sorted(by_value), key=lambda text: len(by_value[text]))
        if 2 * len(siblings := by_value.pop(usual)) <= count < 2 * (len(by_value) + 1):
            continue  # such as a serial number
        golden[name] = usual
        for text, hosts in sorted(by_value.items()):
            sorted_hosts = tuple(sorted(hosts, key=natural))
            deviations.append(Deviation(name, text, usual, sorted_hosts, len(siblings), count))
    return Drift(len(configurations), golden, deviations)


def described(deviations: Sequence[Deviation]) -> list[str]:
    """Return deviations of the same hosts as texts; equal ones of several memory modules share a text."""
    texts = [d.text() for d in deviations if not d.slot]
    for (value, usual), of_module in by_key(deviations, lambda d: (d.value, d.golden)).items():
        if slots := sorted((d.slot for d in of_module if d.slot), key=natural):
            texts.append(f"memory module {first_of(slots, _NAMED)}: {value} (most: {usual})")
    return texts


def dividing_settings(
    configurations: Mapping[str, Configuration], better: Iterable[str], worse: Iterable[str]
) -> list[str]:
    """Return the settings that distinguish two groups of hosts, those without an exception first."""
    sides: list[dict[str, Counter[str]]] = []
    for hosts in (better, worse):
        sides.append(defaultdict(Counter))
        for host in configurations.keys() & {*hosts}:
            for name, text in comparable(host, configurations[host].settings).items():
                sides[-1][name][text] += 1
    dividing = []
    for name in sides[0].keys() & sides[1].keys():
        of_better, of_worse = (side[name].total() for side in sides)
        (good, with_good), (bad, with_bad) = (max(sorted(side[name].items()), key=itemgetter(1)) for side in sides)
        share = min(with_good / of_better, with_bad / of_worse)
        if good != bad and share >= _TELLS:
            text = f"{name}: {bad} on {with_bad} of {of_worse} of the worse hosts, "
            dividing.append((-share, name, f"{text}{good} on {with_good} of {of_better} of the better ones"))
    return [text for *_, text in sorted(dividing)]


def absent_modules(deviations: Sequence[Deviation], usual: Mapping[str, str]) -> str:
    """Return which slots are empty; as a number of channels if all names of channels are known."""
    channels = by_key(usual, lambda slot: channel_of(usual[slot]))
    silent = [slots for slots in channels.values() if {d.slot for d in deviations}.issuperset(slots)]
    what = f"{len(deviations)} of {len(usual)} modules"
    if silent and "" not in channels:
        what = f"{len(silent)} of {len(channels)} channels"
    are = "are" if len(deviations) > 1 else "is"
    return (
        f"{what}: {_slots(deviations)} {are} empty here, filled on {min(d.siblings for d in deviations)} siblings"
    )


def different_modules(deviations: Sequence[Deviation], usual: Mapping[str, str]) -> str:
    """Return which slots have modules that differ from the siblings' in the same slots."""
    by_module = by_key(deviations, lambda d: (without_channel(d.value), without_channel(d.golden)))
    siblings = f"on {min(d.siblings for d in deviations)} siblings"
    return "; ".join(
        f"{f'all {len(usual)} modules' if len(of_module) == len(usual) > 1 else _slots(of_module)}: "
        f"{value} here, {usual_text} {siblings}"
        for (value, usual_text), of_module in by_module.items()
    )


def _slots(deviations: Sequence[Deviation]) -> str:
    names = sorted((" ".join(d.slot.split()) for d in deviations), key=natural)
    return f"slot{'s' * (len(names) > 1)} {first_of(names, _NAMED_SLOTS)}"
