# SPDX-License-Identifier: Apache-2.0
"""A system: its facts, its partitions as ReFrame says, and its references."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from firsttouch import documents, paths
from firsttouch.documents import Document, Problems
from firsttouch.errors import BadInput
from firsttouch.host.topology import Topology
from firsttouch.systems import draft
from firsttouch.systems import facts as facts_module
from firsttouch.systems import references as references_module
from firsttouch.systems.facts import Facts
from firsttouch.systems.references import Reference


@dataclass(frozen=True)
class Partition:
    """Hosts of a system that one scheduler hands out in one way.

    *access* are the scheduler's options for every job, *time_limit* is as ReFrame writes it ("1h30m"; None:
    the scheduler's own), *backend* is how the programs come onto the hosts, *image* the file or folder that it
    takes them from (empty: its own default).
    """

    name: str
    description: str
    scheduler: str
    launcher: str
    access: tuple[str, ...]
    max_jobs: int
    time_limit: str | None
    prepare_cmds: tuple[str, ...]
    environs: tuple[str, ...]
    backend: str
    image: str


@dataclass(frozen=True)
class System:
    """A kind of host, as one YAML file describes it; *path* is the file, None for a draft in memory."""

    name: str
    description: str
    hostnames: tuple[str, ...]
    facts: Facts
    partitions: tuple[Partition, ...]
    references: tuple[Reference, ...]
    path: Path | None

    def programs(self, partition: str, backend: str = "", image: str = "") -> tuple[str, str]:
        """Return the backend on *partition* and its image or view: what is asked for (if anything), or its own."""
        found = next((p for p in self.partitions if p.name == partition), None)
        chosen = backend or (found.backend if found else "native")
        # The partition's image is that of its own backend.
        return chosen, image or (found.image if found and found.backend == chosen else "")

    def reference(self, check: str, metric: str, parameters: Mapping[str, Any]) -> Reference | None:
        """Return what to expect of *metric* of *check* in the case of *parameters*, None where unknown.

        A reference matches where all its parameters are among *parameters* (a record's; the relation
        follows from ``pu_nodes`` and ``bank``); the one with the most parameters wins.
        """
        given = references_module.normalise(parameters, self.facts)
        found = (r for r in self._by_target.get((check, metric), ()) if r.matches(given))
        return max(found, key=lambda r: len(r.parameters), default=None)

    @cached_property
    def _by_target(self) -> dict[tuple[str, str], list[Reference]]:
        found: dict[tuple[str, str], list[Reference]] = {}
        for reference in self.references:
            found.setdefault((reference.check, reference.metric), []).append(reference)
        return found


def mismatch(system: System, host: Topology) -> str:
    """Return in one line how *host* differs from the hosts of *system*, or an empty string where it fits.

    What is compared is what scenarios and steps are planned from: the NUMA nodes and the PUs that are online,
    whether or not this process may use them. Such a host may be of another system, or a broken one of this: a
    campaign that judges still measures its topology, so that the host gets its verdict.
    """
    facts = system.facts
    numbers = tuple(node.index for node in host.numa_nodes)
    if len(numbers) != facts.numa_nodes:
        what = "NUMA node" if len(numbers) == 1 else "NUMA nodes"
        return f"this host has {len(numbers)} {what}, {system.name} has {facts.numa_nodes}"
    if numbers != facts.numa_node_numbers:
        has, expected = (",".join(map(str, n)) for n in (numbers, facts.numa_node_numbers))
        return f"this host has NUMA nodes {has}, {system.name} has {expected}"
    if len(host.pus) != facts.pus:
        what = "PU" if len(host.pus) == 1 else "PUs"
        return f"this host has {len(host.pus)} {what}, {system.name} has {facts.pus}"
    return ""


def build(document: Document, *, path: Path | None) -> System:
    """Return the system that *document* describes; raises BadInput with its file and the first bad line."""
    if path is not None:  # a draft fits the schema: validating it would take longer than most commands
        document.check(_schema())
    data = document.data
    problems = Problems(document.file)
    if path is not None and data["name"] != path.stem:
        line = document.line("name")
        problems.add(line, f"name is '{data['name']}' in a file that is called {path.name}")
    names: set[str] = set()
    for i, partition in enumerate(data["partitions"]):
        if partition["name"] in names:
            line = document.line("partitions", i, "name")
            problems.add(line, f"a second partition '{partition['name']}'")
        names.add(partition["name"])
    facts = facts_module.build(document, problems)
    problems.check()  # references are matched by the facts, so these have to be right
    found = references_module.build(document, facts, problems)
    problems.check()
    return System(
        name=data["name"],
        description=data["description"],
        hostnames=tuple(data["hostnames"]),
        facts=facts,
        partitions=tuple(_partition(p) for p in data["partitions"]),
        references=found,
        path=path,
    )


@cache
def _schema() -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(Path(__file__).with_name("schema.json").read_text(encoding="utf-8"))
    return schema


def _partition(data: dict[str, Any]) -> Partition:
    return Partition(
        name=data["name"],
        description=data.get("description", ""),
        scheduler=data["scheduler"],
        launcher=data.get("launcher", "local"),
        access=tuple(data.get("access", [])),
        # Two benchmarks at once on one host would measure each other.
        max_jobs=int(data.get("max_jobs", 1)),
        time_limit=data.get("time_limit"),
        prepare_cmds=tuple(data.get("prepare_cmds", [])),
        environs=tuple(data.get("environs", ["builtin"])),
        backend=data.get("backend", "native"),
        image=data.get("image", ""),
    )


# ----------------------------------------------------------------------
# Finds system files and loads them.


def available() -> dict[str, Path | None]:
    """Return the file of every system by name, ``local`` with None while no file describes this host.

    Raises BadInput where FIRSTTOUCH_SYSTEMS names no folder. The files are not read.
    """
    found: dict[str, Path | None] = {paths.LOCAL: None}
    for folder in reversed(paths.systems()):
        files = {f.stem: f for f in folder.glob("*.yaml") if paths.NAME.match(f.stem)}
        found.update(files)
    return dict(sorted(found.items()))


def load(name_or_path: str | Path) -> System:
    """Return a system by its name or from its file.

    ``local`` without a file of that name is drafted from this host (raises Missing without hwloc). Raises
    BadInput, with file and line, where the file is wrong, or where there is no such system.
    """
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or "/" in text or text.endswith(".yaml"):
        return from_file(Path(name_or_path))
    found = available()
    if text not in found:
        raise BadInput(f"there is no system '{text}': there are {', '.join(found)}")
    file = found[text]
    return of_this_host() if file is None else from_file(file)


def from_file(file: Path) -> System:
    """Return the system that *file* describes; raises BadInput with the line where it is wrong."""
    return build(documents.parse_yaml(documents.read_text(file), file), path=file)


def of_this_host() -> System:
    """Return ``local`` drafted from this host; raises Missing where hwloc is not installed."""
    text = draft.of_this_host(paths.LOCAL)
    return build(documents.parse_yaml(text, Path("draft of this host")), path=None)
