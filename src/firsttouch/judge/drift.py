# SPDX-License-Identifier: Apache-2.0
"""How the configurations of hosts differ from each other, and how a host's configuration changed.

The majority's value of each setting is the golden configuration. What differs on every host by its nature (the
UUID of a root file system, addresses, the host's own name) is left out before values are compared.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from firsttouch.errors import first_of
from firsttouch.host.configuration import MODULE
from firsttouch.host.memory_modules import socket_of_slot
from firsttouch.judge.verdict import Divided, natural
from firsttouch.records.cases import grouped
from firsttouch.records.schema import Record, to_frame

if TYPE_CHECKING:
    import polars as pl

CHECK, METRIC = "configuration", "settings"
#: The columns of a table of records that are read.
READ = ("check", "metric", "status", "system", "host", "time", "parameters")
#: The value of a memory module that a host has not.
ABSENT = "absent"
#: Memory modules that are named.
_NAMED = 3
#: Parameters of the kernel's command line that are of one host only, or repeat the kernel's release.
_OF_HOST = re.compile(
    r"(root|resume|rd\.(lvm|luks|md|iscsi)\.[a-z.]+|ip|BOOTIF|hostname|systemd\.(hostname|machine_id)|nfsroot|netroot"
    r"|BOOT_IMAGE|initrd|ds)=.*"
)
_WORD = re.compile(r"[\w-]+(\.[\w-]+)*")
_UUID = re.compile(r"\b[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_MAC = re.compile(r"\b([0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}\b")
_ADDRESS = re.compile(r"\b(\d{1,3}\.){3}\d{1,3}\b")


class Configuration(Struct, frozen=True):
    """The *settings* of a host at a *time* (ms since 1970), with the *provenance* of some of them."""

    time: int
    settings: Mapping[str, str]
    provenance: Mapping[str, str] = field(default_factory=dict)


class Deviation(Struct, frozen=True):
    """A *setting* whose *value* on some *hosts* differs from the *golden* one, which most of *of* hosts have."""

    setting: str
    value: str
    golden: str
    hosts: tuple[str, ...]
    of: int

    def text(self) -> str:
        """Return the setting with both values; of a command line only the words that differ."""
        if self.setting == "kernel.command_line":
            return f"{self.setting}: {words_apart(self.value, self.golden)}"
        return f"{self.setting} {self.value} (most: {self.golden})"


class ModuleDeviation(Struct, frozen=True):
    """A *slot* whose module is another *value* than the *usual* one of *siblings* among *hosts*."""

    slot: str
    socket: int | None
    value: str
    usual: str
    siblings: int
    hosts: int


class ModuleDeviations(Struct, frozen=True):
    """The *usual* modules of a fleet by slot, and the *deviations* of a host in slots that usually have one."""

    usual: Mapping[str, str]
    deviations: Sequence[ModuleDeviation]


class Drift(Struct, frozen=True):
    """The *golden* configuration of some *hosts*, the *deviations* from it, and what differs *everywhere*."""

    hosts: int
    golden: Mapping[str, str]
    deviations: Sequence[Deviation]
    everywhere: Sequence[str]

    def by_hosts(self) -> dict[tuple[str, ...], list[Deviation]]:
        """Return the deviations by the hosts that share them, the fewest hosts first.

        Nothing tells apart the effects of settings that deviate on the same hosts.
        """
        shared = grouped(self.deviations, lambda deviation: deviation.hosts)
        return dict(sorted(shared.items(), key=lambda item: (len(item[0]), [natural(host) for host in item[0]])))

    def modules(self, host: str, passes: Callable[[str], bool]) -> ModuleDeviations:
        """Return how the modules of a *host* deviate, but for deviations that a host that *passes* shares."""
        usual = {
            name.removeprefix(MODULE): text
            for name, text in self.golden.items()
            if name.startswith(MODULE) and text != ABSENT
        }
        deviations = []
        for setting, of_setting in grouped(self.deviations, lambda d: d.setting).items():
            slot, others = setting.removeprefix(MODULE), sum(len(d.hosts) for d in of_setting)
            for d in of_setting if setting.startswith(MODULE) and slot in usual else ():
                if host in d.hosts and not any(map(passes, d.hosts)):
                    socket, siblings = socket_of_slot(slot, d.golden), d.of - others
                    deviations.append(ModuleDeviation(slot, socket, d.value, d.golden, siblings, d.of))
        return ModuleDeviations(usual, deviations)


# ----------------------------------------------------------------------
# From records to configurations


def changes(source: pl.DataFrame | Iterable[Record]) -> pl.DataFrame:
    """Return the times of all configurations, with their parameters where the host's row before has others.

    *source* are records, or tables of them, or results of this function, also concatenated. The columns are host,
    time (ms since 1970) and parameters (JSON; null for those of the row before). All times are kept: a
    configuration of another source may be of a time between them.
    """
    import polars as pl  # noqa: PLC0415 - a large import

    if not isinstance(source, pl.DataFrame):
        source = to_frame(record for record in source if record.check == CHECK)
    if "check" in source.columns:
        source = source.filter(check=CHECK, metric=METRIC, status="valid")
        source = source.select("host", pl.col("time").dt.epoch("ms"), "parameters")
    ordered = source.with_columns(pl.col("parameters").forward_fill()).sort("host", "time", "parameters")
    is_new = (pl.col("parameters") != pl.col("parameters").shift().over("host")).fill_null(value=True)
    return ordered.with_columns(parameters=pl.when(is_new).then("parameters"))


def nothing() -> pl.DataFrame:
    """Return the table of :func:`changes` without a row."""
    return changes(to_frame(()).select(READ))


def latest(source: pl.DataFrame | Iterable[Record]) -> dict[str, Configuration]:
    """Return the newest configuration of each host of some records, or of a table of them."""
    import polars as pl  # noqa: PLC0415 - a large import

    of_hosts = changes(source).group_by("host", maintain_order=True)
    newest = of_hosts.agg(pl.col("time").last(), pl.col("parameters").drop_nulls().last())
    return {host: Configuration(time, *_read(text)) for host, time, text in newest.iter_rows()}


def sequences(source: pl.DataFrame | Iterable[Record]) -> dict[str, list[Configuration]]:
    """Return the configurations of each host, oldest first, each from the time when it was new.

    Changes of what :func:`comparable` leaves out are no changes.
    """
    seen: dict[str, list[Configuration]] = {}
    for host, time, text in changes(source).drop_nulls().iter_rows():
        now, its = Configuration(time, *_read(text)), seen.setdefault(host, [])
        if not its or differences(host, its[-1], host, now):
            its.append(now)
        else:
            # What can be read only now, or could be read only before, is no change either.
            older = {name: text for name, text in its[-1].settings.items() if not name.startswith(MODULE)}
            its[-1] = Configuration(its[-1].time, {**older, **now.settings}, now.provenance)
    return seen


@lru_cache(maxsize=1 << 14)
def _read(text: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return settings and provenance of a record's parameters. Values that are no texts are left out."""

    def texts(value: Any) -> Mapping[str, str]:
        items = value.items() if isinstance(value, Mapping) else ()
        return {name: text for name, text in items if isinstance(text, str) and text}

    parameters = json.loads(text)
    return texts(parameters.get("settings")), texts(parameters.get("provenance"))


# ----------------------------------------------------------------------
# What differs


def comparable(host: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the *settings* of a *host* without what differs on every host by its nature."""
    short = host.partition(".")[0] or host
    return {
        name: _shared(name, _without_host(text, host, short) if short in text else text)
        for name, text in settings.items()
    }


def _without_host(text: str, *names: str) -> str:
    return _WORD.sub(lambda word: "HOST" if word[0] in names else word[0], text)


@lru_cache(maxsize=1 << 14)
def _shared(name: str, text: str) -> str:
    if name == "kernel.command_line":
        text = " ".join(word for word in text.split() if not _OF_HOST.fullmatch(word))
    elif name.startswith(MODULE):
        return text
    for pattern, instead in ((_UUID, "UUID"), (_MAC, "MAC"), (_ADDRESS, "ADDRESS")):
        text = pattern.sub(instead, text)
    return text


def differences(
    host: str, configuration: Configuration, other_host: str, other: Configuration
) -> dict[str, tuple[str, str]]:
    """Return the settings in which two hosts differ, with both values.

    A setting that cannot be read on either differs in nothing. A memory module may be absent, if both hosts
    know their modules from the same source.
    """
    a, b = comparable(host, configuration.settings), comparable(other_host, other.settings)
    if _source(configuration) == _source(other):
        modules = {name: ABSENT for name in a.keys() | b.keys() if name.startswith(MODULE)}
        a, b = modules | a, modules | b
    else:
        a = {name: text for name, text in a.items() if not name.startswith(MODULE)}
    return {name: (a[name], b[name]) for name in sorted(a.keys() & b.keys()) if a[name] != b[name]}


def _source(configuration: Configuration) -> str:
    return configuration.provenance.get("memory.modules", "")


def words_apart(value: str, golden: str) -> str:
    """Return the words that a text has beside or lacks of another: ``with nosmt, without quiet``."""
    has, most = Counter(value.split()), Counter(golden.split())
    parts = [
        f"{which} {' '.join(words.elements())}"
        for which, words in (("with", has - most), ("without", most - has))
        if words
    ]
    return ", ".join(parts) or "the same words in another order"


def drift(configurations: Mapping[str, Configuration]) -> Drift:
    """Return the golden configuration of hosts and all deviations from it.

    The most frequent value of a setting is golden, of equally frequent ones the first. A setting without a
    majority and with more values than half of the hosts differs everywhere. Hosts that cannot read a setting do
    not count, except for memory modules: of the hosts that know theirs from the most frequent source, those that
    lack one have the value :data:`ABSENT`.
    """
    values: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    sources = Counter(_source(c) for c in configurations.values() if _source(c))
    source = max(sorted(sources), key=sources.__getitem__, default="")
    with_modules = [host for host, c in configurations.items() if source and _source(c) == source]
    for host, configuration in configurations.items():
        for name, text in comparable(host, configuration.settings).items():
            if not name.startswith(MODULE) or _source(configuration) == source:
                values[name][text].append(host)
    most: dict[str, str] = {}
    apart: list[Deviation] = []
    everywhere = []
    for name, by_value in sorted(values.items()):
        if name.startswith(MODULE):
            have = {host for hosts in by_value.values() for host in hosts}
            if lacking := [host for host in with_modules if host not in have]:
                by_value[ABSENT] = lacking
        count = sum(map(len, by_value.values()))
        value = max(sorted(by_value), key=lambda text: len(by_value[text]))
        if 2 * len(by_value[value]) <= count and 2 * len(by_value) > count:
            everywhere.append(name)
            continue
        most[name] = value
        apart += [
            Deviation(name, text, value, tuple(sorted(hosts, key=natural)), count)
            for text, hosts in sorted(by_value.items())
            if text != value
        ]
    return Drift(len(configurations), most, apart, everywhere)


def described(apart: Sequence[Deviation]) -> list[str]:
    """Return deviations of the same hosts as texts; equal ones of several memory modules are one text."""
    texts = [d.text() for d in apart if not d.setting.startswith(MODULE)]
    modules = grouped((d for d in apart if d.setting.startswith(MODULE)), lambda d: (d.value, d.golden))
    for (value, usual), of_module in modules.items():
        slots = sorted((d.setting.removeprefix(MODULE) for d in of_module), key=natural)
        texts.append(f"memory module {first_of(slots, _NAMED)}: {value} (most: {usual})")
    return texts


# ----------------------------------------------------------------------
# Fleets of two groups

#: The least share of either group of a divided fleet that a setting must tell apart.
_TELLS = 0.8


class Division(Struct, frozen=True):
    """Two groups of hosts, and the *settings* that differ between them."""

    groups: Divided
    settings: Sequence[str]


def divisions(configurations: Mapping[str, Configuration], divided: Sequence[Divided]) -> list[Division]:
    """Return what differs between the groups of each of *divided*."""
    hosts = {host for two in divided for host in (*two.better, *two.worse)} & configurations.keys()
    texts = {host: comparable(host, configurations[host].settings) for host in hosts}
    return [Division(two, _telling(texts, two.better, two.worse)) for two in divided]


def _telling(texts: Mapping[str, Mapping[str, str]], better: Sequence[str], worse: Sequence[str]) -> list[str]:
    """Return the settings that tell two groups of hosts apart, those without an exception first."""
    values: dict[str, tuple[Counter[str], Counter[str]]] = defaultdict(lambda: (Counter(), Counter()))
    for side, hosts in enumerate((better, worse)):
        for host in hosts:
            for name, text in texts.get(host, {}).items():
                values[name][side][text] += 1
    telling = []
    for name, (of_better, of_worse) in values.items():
        if not of_better or not of_worse:
            continue
        good, bad = (max(sorted(count), key=count.__getitem__) for count in (of_better, of_worse))
        shares = (of_better[good] / of_better.total(), of_worse[bad] / of_worse.total())
        if good != bad and min(shares) >= _TELLS:
            text = (
                f"{name}: {bad} on {of_worse[bad]} of {of_worse.total()} of the worse hosts, "
                f"{good} on {of_better[good]} of {of_better.total()} of the better ones"
            )
            telling.append((-min(shares), name, text))
    return [text for *_, text in sorted(telling)]
