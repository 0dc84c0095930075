# SPDX-License-Identifier: Apache-2.0
"""The kinds of campaigns, the plan of their steps, and campaign.json, which is written once."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct, convert, to_builtins
from msgspec.structs import asdict

from firsttouch import paths
from firsttouch.benchmarks import measure
from firsttouch.benchmarks import profiles as effort_module
from firsttouch.benchmarks.cases import Cases, topology_of
from firsttouch.campaign.journal import Journal, create_exclusive, now
from firsttouch.datasets import manifest
from firsttouch.errors import BadInput, none_such
from firsttouch.host.emulation import HOST
from firsttouch.systems.definition import load

SCHEMA = 1
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


class Kind(Struct, frozen=True):
    """A kind of campaign.

    *aspects*: the four aspects are measured. *widest*: of the PU-sets with several NUMA nodes, only that with all
    is measured. *aligners*: all aligners by default, not none. *judged*: hosts get a verdict, and undecided and
    suspect metrics are measured again.
    """

    title: str
    aspects: bool
    widest: bool = False
    aligners: bool = False
    judged: bool = False


KINDS: Mapping[str, Kind] = {
    "characterize": Kind("the four aspects of a host", aspects=True),
    "validate": Kind("hosts against their system's references", aspects=True, widest=True, judged=True),
    "strategy": Kind("the placement scenarios of aligners", aspects=False, aligners=True),
}


class Step(Struct, frozen=True, forbid_unknown_fields=True):
    """One measurement: a name, unique in its campaign, and the arguments of ``firsttouch``."""

    #: A part of the names of files.
    name: Annotated[str, Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9_.,+-]*\Z")]
    argv: Annotated[tuple[str, ...], Meta(min_length=1)]

    @property
    def check(self) -> str:
        """The check of its records."""
        if self.argv[0] == "measure":
            return self.argv[1].replace("-", "_")
        return "placement"

    def command(self, records: Path) -> list[str]:
        """Return its arguments, with the option for the file of its records."""
        return [*self.argv, "--records", str(records)]


class Campaign(Struct, frozen=True, forbid_unknown_fields=True):
    """A campaign in *folder*; *aligners* are names, *steps* are in the order in which they run."""

    folder: Path
    kind: str
    system: str
    dataset: str
    aligners: tuple[str, ...]
    effort: str
    repetitions: int
    steps: Annotated[tuple[Step, ...], Meta(min_length=1)]
    created: str

    @property
    def judged(self) -> bool:
        """Return whether the hosts get a verdict."""
        return KINDS[self.kind].judged

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.name

    def host(self, name: str) -> Journal:
        """Return the journal of a host."""
        return Journal(self.folder / "hosts" / name)

    def hosts(self) -> list[Journal]:
        """Return the journals of all hosts that took part."""
        return [Journal(f) for f in self._folders() if HOST.fullmatch(f.name)]

    def strangers(self) -> list[str]:
        """Return a line for each folder in ``hosts/`` whose name cannot be a host's."""
        return [f"{str(f)!r}: not the name of a host" for f in self._folders() if not HOST.fullmatch(f.name)]

    def _folders(self) -> list[Path]:
        return sorted(f for f in (self.folder / "hosts").glob("*") if f.is_dir())


def folder_of(given: str) -> Path:
    """Return the folder of the campaign with the name or path *given*; raises BadInput."""
    if "/" in given:
        if not given.isprintable():
            raise BadInput(f"{given!r}: the name of a campaign's folder must be printable text in UTF-8")
        return Path(given).absolute()
    if not NAME.fullmatch(given):
        raise BadInput(f"'{given}' is not a name for a campaign: letters, digits, '.', '_' and '-', 100 at most")
    return paths.results() / "campaigns" / given


def names() -> list[str]:
    """Return the names of the campaigns in the folder for results."""
    return sorted(file.parent.name for file in (paths.results() / "campaigns").glob("[!.]*/campaign.json"))


def find_campaign(given: str) -> Campaign:
    """Return the campaign with the name or path *given*; raises BadInput, with all names, if it is unknown."""
    folder = folder_of(given)
    if "/" not in given and not folder.exists():
        raise BadInput(none_such("campaign", given, names()))
    return read(folder)


def plan(
    kind: str,
    folder: Path,
    *,
    system: str,
    dataset: str,
    aligners: Sequence[str],
    repetitions: int,
    only: Sequence[str] = (),
    effort: str = "",
) -> Campaign:
    """Return a new campaign of *kind*; raises BadInput for an unknown system, dataset, aligner, step or effort.

    *only* has shell patterns of step names (none: all steps). *effort* is the environment's by default.
    """
    wanted = KINDS[kind]
    thorough = effort_module.chosen_effort(effort).with_aligners(aligners)
    cases = Cases(topology_of(load(system).facts), thorough)
    names = cases.aligners() if aligners or wanted.aligners else []
    if names:
        manifest.load(dataset)
    count = thorough.limit(repetitions)
    steps = [*(_aspects(cases, count, wanted) if wanted.aspects else ())]
    # A campaign of all aligners skips those that are not installed on a host.
    more = ("--if-installed",) if thorough.aligners is None else ()
    steps += [step for name in names for step in _scenarios(cases, name, dataset, count, more)]
    steps = select_steps(steps, only)
    return Campaign(folder, kind, system, dataset, tuple(names), thorough.name, count, tuple(steps), now())


def select_steps(steps: Sequence[Step], only: Sequence[str]) -> list[Step]:
    """Return the *steps* whose names match a pattern of *only* (none: all).

    Raises BadInput for a pattern that matches no step.
    """
    names = [s.name for s in steps]
    for pattern in only:
        if not fnmatch.filter(names, pattern):
            raise BadInput(none_such("step", pattern, names))
    if not steps:
        raise BadInput("there is nothing to measure")
    return [s for s in steps if not only or any(fnmatch.fnmatchcase(s.name, pattern) for pattern in only)]


def _aspects(cases: Cases, repetitions: int, kind: Kind) -> list[Step]:
    again = ("--repetitions", str(repetitions))
    steps = [Step("topology", ("measure", "topology"))]
    for order, times in (("random", again), ("sequential", ("--repetitions", "1"))):
        for node in cases.pu_nodes():
            argv = ("measure", "latency", "--order", order, "--pu-nodes", str(node))
            name = f"latency-{node}" if order == "random" else f"latency-sequential-{node}"
            steps.append(Step(name, (*argv, "--banks", _list(cases.banks(node)), *times)))
    # One process measures all PU-sets of a size, so that it allocates its memory once.
    for size in cases.set_sizes():
        if not kind.widest or size in {1, len(cases.host.cpu_nodes)}:
            nodes = sorted({node for nodes in cases.pu_sets if len(nodes) == size for node in nodes})
            argv = ("measure", "bandwidth", "--set-sizes", str(size), "--pu-nodes", _list(nodes))
            steps.append(Step(f"bandwidth-{size}", (*argv, *cases.bank_options(), *again)))
    threads, banks = _list(cases.contention_threads()), _list(cases.banks(*cases.host.cpu_nodes))
    argv = ("measure", "contention", "--threads", threads, "--banks", banks)
    steps.append(Step("contention", (*argv, *again)))
    divided = {step.argv[1] for step in steps}
    for name, aspect in measure.aspects().items():
        if name not in divided and (aspect.validates or not kind.judged):
            repeated = again if aspect.repeats(measure.AspectRequest(name)) else ()
            for number, options in enumerate(aspect.steps(cases), start=1):
                step = name if number == 1 else f"{name}-{number}"
                steps.append(Step(step, ("measure", name, *options, *repeated)))
    return steps


def _scenarios(cases: Cases, aligner: str, dataset: str, repetitions: int, more: tuple[str, ...]) -> list[Step]:
    """Return a step per scenario; their checksums show whether alignments differ between scenarios."""
    names = [name for single in (True, False) for name in cases.scenarios(single=single)]
    options = ("--aligner", aligner, "--dataset", dataset, "--checksum", "--repetitions", str(repetitions), *more)
    options += ("--index-cache", effort_module.index_cache())
    return [Step(f"{aligner}-{name}", ("run", name, *options)) for name in names]


def _list(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def create(campaign: Campaign) -> Campaign:
    """Write campaign.json and return the campaign; if another process was first, return that one.

    Raises BadInput if that campaign measures something else.
    """
    facts = asdict(campaign)
    del facts["folder"]
    create_exclusive(campaign.folder / "campaign.json", {"schema": SCHEMA, **to_builtins(facts)})
    stored = read(campaign.folder)
    check(stored, {k: v for k, v in facts.items() if k != "created"})
    return stored


def check(campaign: Campaign, wanted: Mapping[str, Any]) -> None:
    """Raise BadInput if fields of *campaign* differ from those in *wanted*."""
    fields = asdict(campaign)
    for key, value in wanted.items():
        if fields[key] != value:
            other = "other steps" if key == "steps" else f"{key} {fields[key]!r}, not {value!r}"
            reason = f"this campaign has {other}: continue it as it is, or begin another one"
            raise BadInput(reason, file=campaign.folder)


def read(folder: Path) -> Campaign:
    """Return the campaign in *folder*; raises BadInput if the folder has none."""
    file = folder / "campaign.json"
    try:
        data = json.loads(file.read_bytes())
        if data.pop("schema") != SCHEMA:
            raise ValueError("another version of firsttouch wrote it")
        campaign = convert({**data, "folder": folder}, Campaign)
        if campaign.kind not in KINDS:
            raise ValueError(f"unknown kind {campaign.kind!r}")
        if len({step.name for step in campaign.steps}) < len(campaign.steps):
            raise ValueError("it has two steps of one name")
    except FileNotFoundError as error:
        raise BadInput("no campaign: it has no campaign.json", file=folder) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadInput(f"not a campaign: {error}", file=file) from error
    return campaign
