# SPDX-License-Identifier: Apache-2.0
"""Writes reports: judges the inputs, chooses the page by the number of hosts, and replaces an earlier report."""

from __future__ import annotations

import datetime
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from msgspec import Struct

from firsttouch import paths
from firsttouch.campaign.campaigns import Campaign
from firsttouch.campaign.journal import full_disk_as_missing
from firsttouch.campaign.state import Gap, State, finished_records, markdown_list, merge, overview, state
from firsttouch.clock import SYSTEM_CLOCK, Clock
from firsttouch.errors import BadInput, one_line
from firsttouch.execution.progress import say
from firsttouch.fleet import verdict_log
from firsttouch.fleet.measuring import campaign_findings
from firsttouch.host import topology
from firsttouch.judge.comparison import compare
from firsttouch.judge.findings import Findings
from firsttouch.judge.history import changes
from firsttouch.judge.judging import judged, undecided_cases
from firsttouch.judge.verdict import ORDER, HostVerdict
from firsttouch.records import atomic_files
from firsttouch.records.cases import by_key
from firsttouch.records.samples_table import SamplesTable
from firsttouch.report import FEW_HOSTS, guidelines, inputs, model, render
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
    by_check = by_key(campaign_state.skipped, lambda gap: check[gap.step])
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
    if strangers or not isinstance(earlier, dict) or earlier.get("document") != render.DOCUMENT:
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


# ----------------------------------------------------------------------
# The report of a campaign from the results so far; it can be repeated at any time

#: The most hosts of a fleet with a page of their own, which has figures: those with the worst verdicts.
MOST_DRAWN = 6
#: The number of reports that a campaign keeps; each collecting job writes a new one.
KEPT = 3
_NEXT = """\
References can be learned from four hosts or more: `firsttouch baseline --system {system} {folder}`, then
`firsttouch validate --system {system} {folder}` judges each host by them. More repetitions may decide, too: submit
the campaign again for these hosts, or use `firsttouch campaign submit … --resubmit 12`."""


class Collected(Struct, frozen=True):
    """The campaign's state, its verdicts (empty if hosts are not judged), the report's folder and the overview.

    *judged* has the verdicts in columns.
    """

    state: State
    verdicts: tuple[HostVerdict, ...]
    report: Path
    text: str
    judged: Findings | None = None


def collect(campaign: Campaign, *, clock: Clock = SYSTEM_CLOCK) -> Collected:
    """Judge the hosts by all results and write the report into a new folder; the link ``report`` points to it.

    Its pages are those of ``firsttouch report``.

    Raises Missing if the campaign's file system is full.
    """
    campaign_state = state(campaign)
    system = load(campaign.system)
    records = finished_records(campaign_state)
    all_judged = campaign_findings(campaign_state, records, system)
    verdicts = tuple(all_judged.verdict(host) for host in all_judged.hosts) if campaign.judged else ()
    _write_verdicts(campaign_state, verdicts)
    text = overview(campaign_state)
    if verdicts:
        text += "\n\n" + verdicts_text(campaign, verdicts, all_judged.notes())
    with full_disk_as_missing(campaign.folder):
        pages = None
        if records or any(gap.host for gap in campaign_state.gaps):
            judging = campaign.system if campaign.judged else None
            title = f"{campaign.kind} {campaign.name}"
            pages, _ = report_of([campaign.folder], judging, details=MOST_DRAWN, title=title)
        folder = _write(campaign_state, text, pages, clock)
    return Collected(campaign_state, verdicts, folder, text, all_judged if campaign.judged else None)


def verdicts_text(campaign: Campaign, verdicts: Sequence[HostVerdict], notes: Sequence[str]) -> str:
    """Return the verdicts of a campaign's hosts in Markdown, with the next steps; *notes* concern the fleet."""
    counts = Counter(v.verdict for v in verdicts)
    text = ", ".join(f"{counts[w]} {w}" for w in reversed(ORDER) if counts[w])
    lines = [v.line() for v in sorted(verdicts, key=lambda v: (v.verdict == "pass", v.host))]
    parts = ["\n".join([f"## Verdicts: {text}", *map(one_line, notes), markdown_list(lines)])]
    if any(v.verdict in {"undecided", "suspect"} and not v.missing for v in verdicts):
        parts.append(
            "## Undecided and suspect hosts\n" + _NEXT.format(system=campaign.system, folder=campaign.folder)
        )
    return "\n\n".join(parts)


def _write_verdicts(campaign_state: State, verdicts: Sequence[HostVerdict]) -> None:
    """Replace the hosts' own verdicts by the fleet's, in their verdict files and in the log of verdicts."""
    measured_at = {journal.host: journal.measured_at() for journal in campaign_state.journals}
    for verdict in verdicts:
        if when := measured_at.get(verdict.host):
            try:
                verdict_log.publish(verdict, when, campaign_state.campaign.name)
            except OSError as error:
                say(f"firsttouch: {verdict_log.folder()}: {error.strerror}: the verdicts are only in the report")
                return


def undecided_hosts(collected: Collected, most: int) -> list[str]:
    """Return the undecided and suspect hosts that more repetitions (at most *most* in total) may decide."""
    if collected.judged is None:
        return []
    return [
        v.host
        for v in collected.verdicts
        if v.verdict in {"undecided", "suspect"}
        and v.host in collected.state.hosts
        and undecided_cases(collected.judged, v.host, most)
    ]


def _write(campaign_state: State, text: str, pages: Callable[[Path], object] | None, clock: Clock) -> Path:
    """Write overview.md, state.json and the *pages* into a new folder, and point the link ``report`` to it."""
    reports = campaign_state.campaign.folder / "reports"
    reports.mkdir(exist_ok=True)
    with atomic_files.scratch(reports / "report") as folder:
        folder.mkdir()
        (folder / "overview.md").write_text(text + "\n", encoding="utf-8")
        text_of_state = json.dumps(campaign_state.to_dict(), indent=1) + "\n"
        (folder / "state.json").write_text(text_of_state, encoding="utf-8")
        if pages is not None:
            pages(folder)
        # UTC, because local times go back once a year, and differ between time zones.
        now = datetime.datetime.fromtimestamp(clock.time(), datetime.UTC)
        final = reports / now.strftime("%Y-%m-%dT%H-%M-%S.%f")
        folder.rename(final)
    with atomic_files.replace(campaign_state.campaign.folder / "report") as link:
        link.symlink_to(Path("reports") / final.name)
    _keep_newest(reports, final)
    return campaign_state.campaign.folder / "report"


def _keep_newest(reports: Path, present: Path) -> None:
    """Remove old reports, but never the *present* one.

    Their names are times; names of unfinished reports begin with a dot.
    """
    others = sorted(folder for folder in reports.glob("[0-9]*") if folder != present)
    for folder in others[: len(others) - (KEPT - 1)] if len(others) >= KEPT else ():
        shutil.rmtree(folder, ignore_errors=True)
