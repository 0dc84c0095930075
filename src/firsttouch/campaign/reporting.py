# SPDX-License-Identifier: Apache-2.0
"""Writes reports: judges the inputs, chooses the page by the number of hosts, and replaces an earlier report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import quote

from firsttouch import paths
from firsttouch.advice import advice_text
from firsttouch.campaign import collect, inputs
from firsttouch.campaign.inputs import Gathered
from firsttouch.errors import BadInput
from firsttouch.judge.comparison import compare
from firsttouch.judge.findings import Findings
from firsttouch.judge.history import changes
from firsttouch.judge.judging import Undescribed, judged
from firsttouch.judge.samples_table import SamplesTable
from firsttouch.records.schema import Unread
from firsttouch.report import guidelines, model, site_tables
from firsttouch.report import pages as report_pages
from firsttouch.report.fleet import comparison as fleet_comparison
from firsttouch.report.fleet import fleet_pages
from firsttouch.report.fleet.comparison import Compared
from firsttouch.report.fleet.fleet_pages import Fleet
from firsttouch.report.fleet.history import History, Timeline, of_fleet
from firsttouch.report.model import Problem
from firsttouch.report.render import Summary
from firsttouch.report.site_tables import TableForm
from firsttouch.systems.definition import System, available, from_file, load


def report_of(
    paths: Sequence[Path],
    system: str | None,
    *,
    few: int,
    details: int,
    topology_xml: str | None,
    max_age: float | None = None,
) -> tuple[Callable[[Path], Summary | Fleet], Callable[[], None]]:
    """Read and judge the records in *paths*; return a function that writes the report into a folder.

    The second function returned is :meth:`Gathered.print_unread`: the report leaves out what cannot be read.

    The references of *system* judge its hosts. If there are many hosts, those of other systems are judged by the
    references of the system that their records name, if a file describes it, and by their fleet. For at most *few*
    hosts the page shows every figure; for more it is that of a fleet, with pages of the *details* worst hosts.
    Records older than *max_age* seconds are left out.
    """
    described = load(system) if system else None
    forms = site_tables.load()
    damaged: list[BadInput] = []
    advice = advice_text.find(paths, damaged.append)
    kept = [path for path in paths if path.is_dir() or not path.name.endswith(advice_text.SUFFIX)]
    gathered = inputs.gather(kept, max_age)
    # Advice is no record of any host: the records of all hosts are complete without it.
    gathered.unread.update({str(error): Unread(error, hosts=frozenset()) for error in damaged})
    samples = gathered.samples(few=few)
    if described is not None and described.name not in {*samples.by_system(), *gathered.missing_of}:
        raise BadInput(f"no record of system {described.name} in {', '.join(map(str, paths))}")
    if len({*samples.hosts, *samples.settings, *gathered.missing}) <= few:
        few_hosts = _of_few(gathered, samples, described, advice, topology_xml, forms=forms)
        return few_hosts, gathered.print_unread
    fleets = _judged(samples, described, gathered)
    configurations = gathered.configurations()
    histories = {
        fleet.system.name: History(changes(fleet.samples, configurations), configurations) for fleet in fleets
    }
    guided = guidelines.guidelines(model.split(gathered.records(aligners=True), (), None), advice)

    def write(out: Path) -> Fleet:
        newest = {host: steps[-1] for host, steps in configurations.items()}
        pages = _details(gathered, fleets, described, out, details) if details else {}
        # The verdicts already list unfinished steps of campaigns as missing.
        problems = [p for p in _problems(gathered) if not (p.host and p.kind == "failed")]
        return fleet_pages.build(
            fleets,
            out,
            problems=problems,
            pages_of=pages,
            guided=guided,
            histories=histories,
            configurations=newest,
            dated_ahead=gathered.dated_ahead,
            of_site=site_tables.of_fleets(forms, fleets, newest),
        )

    return write, gathered.print_unread


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
    same = before.name == after.name
    names = (str(before), str(after)) if same else (before.name or str(before), after.name or str(after))
    return partial(fleet_comparison.build, compared, names=names)


def _judged(samples: SamplesTable, described: System | None, gathered: Gathered) -> list[Findings]:
    """Return the verdicts of each system's hosts, with the missing results of its campaigns."""
    missing, parts = gathered.missing_of, samples.by_system()
    unread = gathered.unread_of((), any_host=False)
    fleets = []
    for name in sorted({*parts, *missing, *(system for system, _ in gathered.dated_ahead)}):
        judging = described if described is not None and described.name == name else _judging(name)
        part = parts[name] if name in parts else samples.by_system(name)[name]
        lost = {host: list(reasons) for host, reasons in missing.get(name, {}).items()}
        for host in unread.keys() & {*part.hosts, *lost}:
            lost.setdefault(host, []).extend(unread[host])
        for host, sentence in gathered.ahead(name).items():
            if host not in part.hosts:
                lost.setdefault(host, []).append(sentence)
        fleets.append(judged(part, judging, missing=lost, configurations=gathered.newest_configurations))
    return fleets


def _judging(name: str) -> System | Undescribed:
    """Return the system that records name, if a file describes it; ``local`` is another system on each host."""
    file = available().get(name) if name != paths.LOCAL else None
    return Undescribed(name) if file is None else from_file(file)


def _of_few(
    gathered: Gathered,
    samples: SamplesTable,
    described: System | None,
    advice: list[dict[str, object]],
    xml: str | None,
    *,
    forms: Sequence[TableForm],
) -> Callable[[Path], Summary]:
    records = gathered.records()
    problems = _problems(gathered)
    if not records and not advice and len(problems) == len(gathered.unread):
        raise gathered.nothing()
    verdicts, common_losses = [], {}
    if described is not None:
        (fleet,) = [f for f in _judged(samples, described, gathered) if f.system.name == described.name]
        verdicts = [fleet.of(host) for host in fleet.hosts]
        common_losses[described.name] = fleet.common_loss

    return partial(
        report_pages.build,
        records,
        topology_xml=xml,
        problems=problems,
        references=model.references_of(described),
        verdicts=verdicts,
        common_losses=common_losses,
        advice=advice,
        timeline=_timeline(samples, gathered),
        forms_of_site=forms,
    )


def _timeline(samples: SamplesTable, gathered: Gathered) -> Timeline | None:
    """Return the section about the history of a few hosts, None if nothing changed."""
    configurations = gathered.configurations()
    listed = [change for part in samples.by_system().values() for change in changes(part, configurations)]
    return of_fleet(samples, History(listed, configurations)) if listed else None


def _problems(gathered: Gathered) -> list[Problem]:
    """Return the missing results of campaigns and ReFrame's runs, with the reasons."""
    problems = [
        Problem(str(u.error.file), "failed", f"cannot be read: {u}", check="") for u in gathered.unread.values()
    ]
    problems += [Problem(t.check, t.result, t.reason, check=t.word) for t in gathered.troubles]
    problems += [Problem(f"clock of {h}", "failed", reason, check="") for h, reason in gathered.ahead().items()]
    return problems + [problem for seen in gathered.campaigns for problem in collect.problems(seen)]


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
        verdicts = [fleet.of(host) for fleet in fleets if host in fleet.number]
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
