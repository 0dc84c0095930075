# SPDX-License-Identifier: Apache-2.0
"""A system: its facts, its partitions in ReFrame's terms, and its references."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from firsttouch import documents, paths
from firsttouch.documents import FileTable, ParsedFile, Regex, Text
from firsttouch.errors import BadInput, first_of, none_such
from firsttouch.host import memory_modules
from firsttouch.host.memory_modules import Installed, Module
from firsttouch.host.topology import Topology
from firsttouch.systems import draft
from firsttouch.systems import facts as facts_module
from firsttouch.systems import references as references_module
from firsttouch.systems.facts import Facts, FactsTable
from firsttouch.systems.references import Reference

#: The names of some parameters, and the references by the values of these parameters.
_OfNames = tuple[tuple[str, ...], dict[tuple[Any, ...], Reference]]

#: The most hosts that a sentence names.
_NAMED = 4


_Name = Annotated[
    str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_-]*\Z", description="a name of letters, digits, _ and -")
]
_Time = Annotated[
    str, Meta(pattern=r"^(?=.)([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?\Z", description='a time such as "1h30m"')
]


class Partition(FileTable, frozen=True):
    """A partition in ReFrame's terms: hosts of a system behind one scheduler with one set of options.

    *access* are the scheduler's options of every job, *time_limit* is in ReFrame's notation ("1h30m"; None: the
    scheduler's default). *backend* provides the programs, from the file or folder *image* (empty: the backend's
    default).
    """

    name: _Name
    scheduler: Literal["local", "squeue", "slurm"]
    #: Two benchmarks at once on one host would disturb each other.
    max_jobs: Annotated[int, Meta(ge=1, le=65536)] = 1
    description: Text = ""
    launcher: Literal["local", "srun"] = "local"
    access: tuple[Text, ...] = ()
    time_limit: _Time | None = None
    prepare_cmds: tuple[Text, ...] = ()
    environs: Annotated[tuple[Literal["builtin"], ...], Meta(min_length=1)] = ("builtin",)
    backend: Literal["native", "apptainer", "spack"] = "native"
    image: Text = ""


class SystemFile(FileTable, frozen=True):
    """The file of a system."""

    name: _Name
    description: Text
    hostnames: Annotated[tuple[Regex, ...], Meta(min_length=1)]
    facts: FactsTable
    partitions: Annotated[tuple[Partition, ...], Meta(min_length=1)]
    references: tuple[dict[str, Any], ...] = ()
    #: The references that ``firsttouch baseline`` wrote.
    learnt: tuple[dict[str, Any], ...] = ()
    #: A host passes only if a loss of this size (a fraction) would have been visible in each part.
    sight: Annotated[float, Meta(ge=0.01, le=1.0)] | None = None


class System(Struct, frozen=True, dict=True):
    """A kind of host, described by the YAML file *path* (None: drafted in memory)."""

    name: str
    description: str
    hostnames: tuple[str, ...]
    facts: Facts
    partitions: tuple[Partition, ...]
    references: tuple[Reference, ...]
    path: Path | None
    #: The loss of a part that must be visible for a pass (a fraction); None: the judge's default.
    sight: float | None = None

    @property
    def access(self) -> tuple[str, ...]:
        """The options of jobs that Slurm needs to reach the hosts, from the first partition with Slurm."""
        return next((p.access for p in self.partitions if p.scheduler in {"slurm", "squeue"}), ())

    def strangers(self, hosts: Iterable[str]) -> str:
        """Return a sentence about the *hosts* whose names do not fit ``hostnames``; "" if all fit."""
        unlike = [host for host in hosts if not any(re.match(pattern, host) for pattern in self.hostnames)]
        if not unlike:
            return ""
        does = "does" if len(unlike) == 1 else "do"
        names = f"{first_of(unlike, _NAMED)} {does} not fit `hostnames` of the system {self.name}"
        return f"{names} ({', '.join(self.hostnames)}): are these hosts of another kind?"

    def programs(self, partition: str, backend: str = "", image: str = "") -> tuple[str, str]:
        """Return the backend and its image or view: the given ones, or else the ones of *partition*."""
        own = next((p for p in self.partitions if p.name == partition), None)
        chosen = backend or (own.backend if own else "native")
        # The partition's image belongs to the partition's backend.
        return chosen, image or (own.image if own and own.backend == chosen else "")

    def reference(self, check: str, metric: str, parameters: Mapping[str, Any]) -> Reference | None:
        """Return the reference of *metric* of *check* in the case of *parameters*, None without one.

        A reference matches if all its parameters are among *parameters* (a record's; the relation follows from
        ``pu_nodes`` and ``bank``). The one with the most parameters wins. A record whose index was not cached is
        compared only with references that say so, because the others come from several runs with a cached index.
        """
        given = references_module.normalise(parameters, self.facts)
        for names, references in self._index.get((check, metric), ()):
            if given.get("index_cache") == "cold" and "index_cache" not in names:
                continue
            with contextlib.suppress(TypeError):  # a list in a list, which no reference has
                if reference := references.get(tuple(given.get(name) for name in names)):
                    return reference
        return None

    def fact(self, check: str, metric: str) -> Reference | None:
        """Return the reference that the facts state for a metric; None if it is missing or was drafted."""
        return None if self.path is None else references_module.fact_reference(check, metric, self.facts)

    @cached_property
    def _index(self) -> dict[tuple[str, str], list[_OfNames]]:
        """References by check and metric, then by the names (most first) and values of their parameters."""
        index: dict[tuple[str, str], dict[tuple[str, ...], dict[tuple[Any, ...], Reference]]] = {}
        for reference in self.references:
            names = tuple(sorted(reference.parameters))
            by_names = index.setdefault((reference.check, reference.metric), {})
            values = tuple(reference.parameters[name] for name in names)
            by_names.setdefault(names, {}).setdefault(values, reference)
        return {
            target: sorted(by_names.items(), key=lambda item: -len(item[0])) for target, by_names in index.items()
        }


class Undescribed(Struct, frozen=True):
    """A system without a file: its hosts are judged by the fleet only."""

    name: str
    facts: None = None
    sight: None = None

    def reference(self, *_: object) -> None:
        """Return None: this system has no references."""

    def fact(self, *_: object) -> None:
        """Return None: this system has no facts."""


def mismatch(system: System, host: Topology) -> str:
    """Return in one line how *host* differs from the hosts of *system*, or an empty string.

    Compared are the online NUMA nodes and PUs, from which scenarios and steps are planned, whether or not this
    process may use them. A host that differs belongs to another system, or is broken. A campaign that judges still
    measures its topology, so that the host gets a verdict.
    """
    facts = system.facts
    numbers = tuple(node.index for node in host.numa_nodes)
    if len(numbers) != facts.numa_nodes:
        nodes = "NUMA node" if len(numbers) == 1 else "NUMA nodes"
        return f"this host has {len(numbers)} {nodes}, {system.name} has {facts.numa_nodes}"
    if numbers != facts.numa_node_numbers:
        has, expected = (",".join(map(str, n)) for n in (numbers, facts.numa_node_numbers))
        return f"this host has NUMA nodes {has}, {system.name} has {expected}"
    if len(host.pus) != facts.pus:
        pus = "PU" if len(host.pus) == 1 else "PUs"
        return f"this host has {len(host.pus)} {pus}, {system.name} has {facts.pus}"
    return ""


def build(document: ParsedFile, *, path: Path | None) -> System:
    """Return the system that *document* describes; raises BadInput with its file and the first bad line."""
    stated = document.convert(SystemFile)
    if path is not None and stated.name != path.stem:
        document.problem(f"name is '{stated.name}' in a file that is called {path.name}", "name")
    names: set[str] = set()
    for i, partition in enumerate(stated.partitions):
        if partition.name in names:
            document.problem(f"a second partition '{partition.name}'", "partitions", i, "name")
        names.add(partition.name)
    facts = facts_module.build(document, stated.facts)
    document.refuse_problems()  # references are built from the facts
    references = references_module.build(document, facts)
    document.refuse_problems()
    return System(
        name=stated.name,
        description=stated.description,
        hostnames=stated.hostnames,
        facts=facts,
        partitions=stated.partitions,
        references=references,
        path=path,
        sight=stated.sight,
    )


# ----------------------------------------------------------------------
# Finding and loading system files


def available() -> dict[str, Path | None]:
    """Return the file of each system by name; the file of ``local`` is None until this host has one.

    The files are not read. Raises BadInput if FIRSTTOUCH_SYSTEMS names a folder that does not exist.
    """
    files = {paths.LOCAL: None, **paths.data_files("systems", ".yaml")}
    return {name: files[name] for name in sorted(files) if re.match(paths.NAME, name)}


def load(name_or_path: str | Path) -> System:
    """Return a system by its name or from its file.

    ``local`` is drafted from this host if it has no file (raises Missing without the probe). Raises BadInput for
    an unknown system and, with file and line, for a wrong file.
    """
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or "/" in text or text.endswith(".yaml"):
        return from_file(Path(name_or_path))
    files = available()
    if text not in files:
        raise BadInput(none_such("system", text, files))
    file = files[text]
    return draft_local() if file is None else from_file(file)


def from_file(file: Path) -> System:
    """Return the system that *file* describes; raises BadInput with the line of the first error."""
    return build(documents.parse_yaml(documents.read_text(file), file), path=file)


def draft_local() -> System:
    """Return ``local`` drafted from this host; raises Missing without the probe."""
    text = draft.draft_host(paths.LOCAL)
    return build(documents.parse_yaml(text, Path("draft of this host")), path=None)


# ----------------------------------------------------------------------
# The theoretical bandwidth of a host's memory (thesis section 3.2, formula 3.1)
#
# It is transfers per second x populated channels x word size, from the SMBIOS tables if they can be read (by
# dmidecode as root, or from udev), or else from the facts of the system's file. Otherwise it is unknown, with a
# reason.


class Theoretical(Struct, frozen=True):
    """The theoretical bandwidth of all memory of a host (bytes/s), None if it is unknown because of *reason*."""

    bytes_per_second: float | None
    channels: int | None = None
    transfer_rate: float | None = None
    source: str = ""
    reason: str = ""


def theoretical_of_modules(modules: Sequence[Module]) -> Theoretical:
    """Return the bandwidth of these modules; a channel is as fast as its slowest module."""
    source = "SMBIOS"
    if not modules:
        return Theoretical(None, source=source, reason="the firmware reports no populated memory module")
    for attribute, name in (("transfer_rate", "speed"), ("data_bits", "width")):
        if not all(getattr(module, attribute) for module in modules):
            return Theoretical(None, source=source, reason=f"the firmware does not report the modules' {name}")
    if any(not m.channel for m in modules):
        names = ", ".join(dict.fromkeys(m.locator for m in modules if not m.channel))
        return Theoretical(
            None, source=source, reason=f"the modules' names do not contain their channels: {names}"
        )
    channels: dict[str, float] = {}
    for module in modules:
        rate = module.transfer_rate * module.data_bits / 8
        channels[module.channel] = min(rate, channels.get(module.channel, rate))
    return Theoretical(sum(channels.values()), len(channels), min(m.transfer_rate for m in modules), source=source)


def theoretical_of_facts(facts: Facts, source: str) -> Theoretical:
    """Return the bandwidth from a system's facts: one package's, times the number of packages."""
    per_package = facts.theoretical_bandwidth()
    if per_package is None or facts.channels_per_package is None:
        reason = "the facts lack the memory's channels or transfer rate"
        return Theoretical(None, source=source, reason=reason)
    channels = facts.channels_per_package * facts.packages
    return Theoretical(per_package * facts.packages, channels, facts.transfer_rate, source=source)


def theoretical_of_host(system: str | None = None, installed: Installed | None = None) -> Theoretical:
    """Return the bandwidth from SMBIOS, else from the file of *system*, else the reasons against both.

    *installed* are the host's modules (None: they are read).
    """
    installed = installed or memory_modules.read_modules()
    # EDAC shows no speed: the reason is why SMBIOS could not be read.
    no_smbios = Theoretical(None, source="SMBIOS", reason=installed.reason)
    smbios = no_smbios if installed.reason else theoretical_of_modules(installed.modules)
    if smbios.bytes_per_second or system is None:
        return smbios
    fallback = theoretical_of_facts(load(system).facts, f"facts of the system '{system}'")
    if fallback.bytes_per_second:
        return fallback
    return Theoretical(None, source=fallback.source, reason=f"{smbios.reason}; {fallback.reason}")
