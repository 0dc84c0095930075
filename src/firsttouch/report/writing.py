# SPDX-License-Identifier: Apache-2.0
"""Writes reports: judges the inputs, chooses the page by the number of hosts, and replaces an earlier report."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from firsttouch import paths
from firsttouch.campaign.state import Gap, State, merge
from firsttouch.errors import BadInput
from firsttouch.host import topology
from firsttouch.judge.comparison import compare
from firsttouch.judge.findings import Findings
from firsttouch.judge.history import changes
from firsttouch.judge.judging import judged
from firsttouch.records import atomic_files
from firsttouch.records.samples_table import SamplesTable
from firsttouch.report import FEW_HOSTS, guidelines, inputs, model, summary
from firsttouch.report import pages as report_pages
from firsttouch.report.fleet import comparison as fleet_comparison
from firsttouch.report.fleet import fleet_pages
from firsttouch.report.fleet.comparison import Compared
from firsttouch.report.fleet.fleet_pages import FleetSummary
from firsttouch.report.inputs import Gathered
from firsttouch.report.model import Kind, Problem
from firsttouch.report.render import Summary
from firsttouch.systems.definition import System, Undescribed, available, from_file, load


class Written(NamedTuple):
    """A written report: its summary, and its inputs if unreadable ones were left out.

    *is_worse* is whether a comparison shows a loss.
    """

    summary: Summary | FleetSummary | Compared
    inputs: Gathered | None = None
    is_worse: bool = False


def write_report(
    records: Sequence[Path],
    out: Path,
    *,
    system: str | None = None,
    details: int = 0,
    xml: Path | None = None,
    max_age: float | None = None,
) -> Written:
    """Write a report of the *records* (files, folders, stores, campaigns) into the folder *out*.

    An earlier report there is replaced. The references of *system* judge its hosts. For a few hosts the page shows
    every figure; for more it describes a fleet, with pages of the *details* worst hosts. *xml* is the topology of
    the host that it names. Records older than *max_age* seconds are left out. Raises BadInput for anything else in
    *out*, and if a report would be empty.
    """
    topology_xml = _prepared(records, out, xml)
    make, gathered = report_of(records, system, details=details, topology_xml=topology_xml, max_age=max_age)
    with _in_place_of(paths.resolve(out)) as partial_out:
        return Written(make(partial_out), gathered)


def write_comparison(
    before: Path, after: Path, out: Path, *, system: str | None = None, xml: Path | None = None
) -> Written:
    """Write a report into the folder *out* that compares the records of two paths."""
    _prepared([before, after], out, xml)
    make = comparison(before, after, system)
    with _in_place_of(paths.resolve(out)) as partial_out:
        compared = make(partial_out)
        return Written(compared, is_worse=compared.is_worse)


def _prepared(records: Sequence[Path], out: Path, xml: Path | None) -> str | None:
    """Return the topology in *xml*; raises BadInput for anything else, or if *out* has anything but a report."""
    atomic_files.refuse_overwriting([paths.resolve(out)], [*records, *([xml] if xml else [])])
    _check_replaceable(paths.resolve(out))
    if xml is None:
        return None
    topology.load(xml=xml)  # names the file in its error
    return xml.read_text(encoding="utf-8", errors="replace")


def report_of(
    records: Sequence[Path],
    system: str | None,
    *,
    details: int,
    topology_xml: str | None = None,
    max_age: float | None = None,
    title: str = "",
) -> tuple[Callable[[Path], Summary | FleetSummary], Gathered]:
    """Read and judge the *records*; return a function that writes the report into a folder, and the inputs.

    The references of *system* judge its hosts. With many hosts, hosts of other systems are judged by the
    references of the system in their records, if it has a file, and by their fleet. For a few hosts the page shows
    every figure; for more it describes a fleet, with pages of the *details* worst hosts. Records older than
    *max_age* seconds are left out.
    """
    described = load(system) if system else None
    gathered = inputs.gather(records, max_age)
    samples = gathered.samples()
    if described is not None:
        gathered.refuse_without(described.name, samples.by_system(described.name)[described.name].hosts)
    missing = (host for of_system in gathered.missing_of.values() for host in of_system)
    if len({*samples.hosts, *samples.settings, *missing, *gathered.ahead()}) <= FEW_HOSTS:
        return _of_few(gathered, samples, described, topology_xml, title), gathered
    fleets = _judged(samples, described, gathered)
    histories = {f.system.name: changes(f) for f in fleets}
    guided = guidelines.guidelines(model.split(gathered.records(aligners=True), (), None))

    def write(out: Path) -> FleetSummary:
        pages = _details(gathered, fleets, described, out, details) if details else {}
        # The verdicts already list unfinished steps of campaigns as missing.
        problems = [p for p in _problems(gathered) if not (p.host and p.kind == "failed")]
        return fleet_pages.build(
            fleets,
            out,
            problems=problems,
            title=title or "NUMA report of a fleet",
            pages_of=pages,
            guided=guided,
            histories=histories,
            configurations=gathered.configurations(),
        )

    return write, gathered


def comparison(before: Path, after: Path, system: str | None) -> Callable[[Path], Compared]:
    """Compare the records of two paths; return a function that writes the report into a folder."""
    columns = []
    for path in (before, after):
        gathered = inputs.gather([path])
        samples = gathered.samples()
        gathered.refuse_unread()
        columns.append(samples if system is None else samples.by_system(system)[system])
        if not columns[-1].hosts:
            raise gathered.nothing()
    compared = compare(*columns)
    if not compared.changes:
        raise BadInput(f"{before} and {after} have no metric of the same host in common: nothing to compare")
    same = before.name == after.name
    names = (str(before), str(after)) if same else (before.name or str(before), after.name or str(after))
    return partial(fleet_comparison.build, compared, names=names)


def _judged(samples: SamplesTable, described: System | None, gathered: Gathered) -> list[Findings]:
    """Return the verdicts of each system's hosts, with the missing results of its campaigns."""
    parts = samples.by_system()
    fleets = []
    names = sorted({*parts, *gathered.missing_of, *(system for system, _ in gathered.dated_ahead)})
    for name in names:
        judging = described if described is not None and described.name == name else _judging(name)
        part = parts[name] if name in parts else samples.by_system(name)[name]
        missing = gathered.lost(name, part.hosts, strangers=names == [name] or judging is described)
        fleets.append(judged(part, judging, missing=missing, configurations=gathered.configurations))
    return fleets


def _judging(name: str) -> System | Undescribed:
    """Return the system in the records, if it has a file; ``local`` differs from host to host."""
    file = available().get(name) if name != paths.LOCAL else None
    return Undescribed(name) if file is None else from_file(file)


def _of_few(
    gathered: Gathered,
    samples: SamplesTable,
    described: System | None,
    xml: str | None,
    title: str,
) -> Callable[[Path], Summary]:
    records = gathered.records()
    problems = _problems(gathered)
    if not records and len(problems) == len(gathered.unread):
        raise gathered.nothing()
    verdicts, alone, common_losses = [], [], {}
    fleets = _judged(samples, described, gathered)
    for fleet in fleets:
        verdicts_of = [fleet.verdict(host) for host in fleet.hosts]
        if described is not None and fleet.system.name == described.name:
            verdicts += verdicts_of
            common_losses[described.name] = fleet.common_loss
        else:
            alone += verdicts_of
    return partial(
        report_pages.build,
        records,
        topology_xml=xml,
        problems=problems,
        references=model.references_of(described),
        verdicts=verdicts,
        alone=alone,
        common_losses=common_losses,
        changes=[change for fleet in fleets for change in changes(fleet)],
        title=title or "NUMA report",
    )


def _problems(gathered: Gathered) -> list[Problem]:
    """Return the missing results of campaigns and ReFrame's runs, with the reasons."""
    problems = [
        Problem(str(u.error.file), "failed", f"cannot be read: {u}", check="") for u in gathered.unread.values()
    ]
    problems += [Problem(t.check, t.result, t.reason, check=t.word) for t in gathered.troubles]
    problems += [Problem(f"clock of {h}", "failed", reason, check="") for h, reason in gathered.ahead().items()]
    return problems + [problem for seen in gathered.campaigns for problem in _problems_of(seen)]


def _problems_of(campaign_state: State) -> list[Problem]:
    """Return missing and skipped steps; steps that a host skipped for the same reason are one problem."""
    check = {step.name: step.check for step in campaign_state.campaign.steps}
    hosts = f"hosts of {campaign_state.campaign.name}"

    def row(gap: Gap, kind: Kind, reason: str, name: str) -> Problem:
        return Problem(gap.step or gap.host or hosts, kind, reason, name, gap.host)

    missing_steps = [row(g, "failed", f"missing: {g.reason}", check.get(g.step, "")) for g in campaign_state.gaps]
    by_check: dict[str, list[Gap]] = {}
    for gap in campaign_state.skipped:
        by_check.setdefault(check[gap.step], []).append(gap)
    skipped = [row(g, "skipped", g.reason, name) for name, gaps in sorted(by_check.items()) for g in merge(gaps)]
    return missing_steps + skipped


def _details(
    gathered: Gathered, fleets: Sequence[Findings], described: System | None, out: Path, most: int
) -> dict[str, str]:
    """Write the pages of the worst hosts; return their links from the fleet's page by host."""
    ranked = [
        (rank, fleet.system.name, host) for fleet in fleets for rank, host in enumerate(fleet_pages.worst(fleet))
    ]
    chosen = [host for _, _, host in sorted(ranked)][:most]
    records = gathered.records(chosen)
    pages = {}
    for host in dict.fromkeys(chosen):
        of_host = [r for r in records if r.host == host]
        if not of_host:
            continue
        name = quote(host, safe="").replace(".", "%2E") if host.startswith(".") else quote(host, safe="")
        folder = out / "hosts" / name
        folder.mkdir(parents=True)
        verdicts = [fleet.verdict(host) for fleet in fleets if host in fleet.number]
        report_pages.build(
            of_host,
            folder,
            references=model.references_of(described),
            verdicts=verdicts,
            title=f"NUMA report {host}",
            fleet_page="../../index.html",
        )
        pages[host] = f"hosts/{quote(name)}/index.html"
    return pages


def _check_replaceable(out: Path) -> None:
    """Raise BadInput if the folder holds anything but an earlier report."""
    nearest = next(folder for folder in (out, *out.parents) if folder.exists())
    if not nearest.is_dir():
        raise BadInput("not a folder", file=nearest)
    if nearest != out:
        return
    there = {entry.name for entry in out.iterdir()}
    if not there:
        return
    strangers = sorted(there - report_pages.FILES - fleet_pages.FILES)
    try:
        earlier = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        earlier = None
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", file=out / "summary.json") from error
    if strangers or not isinstance(earlier, dict) or earlier.get("document") != summary.DOCUMENT:
        what = f"it holds {strangers[0]}" if strangers else "its summary.json is not a report's"
        raise BadInput(f"not an earlier report ({what}): give a new or an empty folder", file=out)


@contextmanager
def _in_place_of(out: Path) -> Iterator[Path]:
    """Yield a folder next to *out* that replaces it at the end; after an error it is removed."""
    partial = None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with atomic_files.scratch(out) as partial:
            partial.mkdir()
            yield partial
            _publish(partial, out)
    except OSError as error:
        name = Path(error.filename or out)
        if partial is not None and name.is_relative_to(partial):
            name = out / name.relative_to(partial)
        raise BadInput(f"the report cannot be written: {error.strerror}", file=name) from error


def _publish(partial: Path, out: Path) -> None:
    """Replace *out* by the finished report *partial*, as a whole."""
    if not out.exists():
        partial.rename(out)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{out.name}.old.", dir=out.parent))
    try:
        out.rename(old)  # onto an empty folder: allowed, and atomic
        try:
            partial.rename(out)
        except OSError:
            old.rename(out)
            raise
    finally:
        atomic_files.remove(old)
