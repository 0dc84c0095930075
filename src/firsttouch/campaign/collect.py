# SPDX-License-Identifier: Apache-2.0
"""The report of a campaign from the results so far; it can be made any number of times."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from firsttouch.campaign.campaigns import DEFAULT_SCENARIO, Campaign
from firsttouch.campaign.journal import full_disk_as_missing
from firsttouch.campaign.state import Gap, State, dumps, merged, overview, state, unfinished
from firsttouch.clock import SYSTEM_CLOCK, Clock
from firsttouch.execution.progress import say
from firsttouch.judge import drift, samples_table, verdict_file, verdict_log
from firsttouch.judge.common_loss import CommonLoss
from firsttouch.judge.findings import Findings
from firsttouch.judge.judging import judged, undecided_cases
from firsttouch.judge.verdict import ORDER, HostVerdict
from firsttouch.records import atomic_files
from firsttouch.records.schema import Record
from firsttouch.systems.definition import System, load

if TYPE_CHECKING:
    from firsttouch.report.model import Kind, Problem

#: Most hosts with figures in a report; of more, the hosts with the worst verdicts have them.
MOST_DRAWN = 6
#: Reports that a campaign keeps; each collecting job makes a new one.
KEPT = 3


class Collected(Struct, frozen=True):
    """The campaign's state, its verdicts (empty if hosts are not judged), the report's folder and the overview.

    *judged* has the verdicts in columns.
    """

    state: State
    verdicts: tuple[HostVerdict, ...]
    report: Path
    text: str
    judged: Findings | None = None


def collect(campaign: Campaign, *, draw: bool = True, clock: Clock = SYSTEM_CLOCK) -> Collected:
    """Judge the hosts by all results and write the report into a new folder; the link ``report`` points to it.

    Raises Missing if the campaign's file system is full.
    """
    campaign_state = state(campaign)
    system = load(campaign.system)
    records = measured(campaign_state)
    all_judged = findings(campaign_state, records, system)
    verdicts = tuple(all_judged.of(host) for host in all_judged.hosts) if campaign.judged else ()
    _write_verdicts(campaign_state, verdicts)
    text = overview(campaign_state, verdicts, all_judged.notes() if campaign.judged else ())
    with full_disk_as_missing(campaign.folder):
        common_losses = {system.name: all_judged.common_loss} if campaign.judged else {}
        report = partial(_report, campaign_state, records, system, verdicts, common_losses=common_losses)
        folder = _write(campaign_state, text, report if draw and (records or campaign_state.gaps) else None, clock)
    return Collected(campaign_state, verdicts, folder, text, all_judged if campaign.judged else None)


def findings(campaign_state: State, records: Sequence[Record], system: System) -> Findings:
    """Return the verdicts of a campaign's hosts by all its *records*, their configurations and what is missing."""
    samples = samples_table.of_records(records, system.name)
    return judged(samples, system, missing=missing(campaign_state), configurations=lambda: drift.latest(records))


def _write_verdicts(campaign_state: State, verdicts: Sequence[HostVerdict]) -> None:
    """Replace the hosts' own verdicts by the fleet's, in their verdict files and in the log of verdicts."""
    measured_at = {journal.host: journal.measured_at() for journal in campaign_state.journals}
    for verdict in verdicts:
        if when := measured_at.get(verdict.host):
            try:
                verdict_log.publish(verdict, when, campaign_state.campaign.name)
            except OSError as error:
                say(f"firsttouch: {verdict_file.folder()}: {error.strerror}: the verdicts are only in the report")
                return


def undecided_hosts(collected: Collected, most: int) -> list[str]:
    """Return the undecided and suspect hosts that more repetitions, at most *most* in all, may decide."""
    if collected.judged is None:
        return []
    return [
        v.host
        for v in collected.verdicts
        if v.verdict in {"undecided", "suspect"}
        and v.host in collected.state.hosts
        and undecided_cases(collected.judged, v.host, most)
    ]


def measured(campaign_state: State) -> list[Record]:
    """Return the records of all finished steps; records with differing alignments become invalid."""
    return agree(record for journal in campaign_state.journals for record in journal.all_records())


def missing(campaign_state: State) -> dict[str, list[str]]:
    """Return, by host, what is missing and why; named hosts that did not take part are included."""
    if campaign_state.campaign.shared:  # no host had to do any particular step
        return {j.host: [] for j in campaign_state.journals}
    gaps = {(gap.host, gap.step) for gap in campaign_state.gaps}
    by_host = {
        j.host: [
            f"{step}: {reason}"
            for step, reason in unfinished(campaign_state.campaign, j).items()
            if (j.host, step) in gaps
        ]
        for j in campaign_state.journals
    }
    for host, gap in campaign_state.silent.items():
        if (host, gap.step) in gaps:
            others = [line for line in by_host.get(host, ()) if not line.startswith(f"{gap.step}: ")]
            by_host[host] = [gap.reason, *others]
    for gap in campaign_state.gaps:
        if gap.host and not gap.step and gap.host not in campaign_state.silent:
            by_host.setdefault(gap.host, []).append(gap.reason)
    return by_host


def problems(campaign_state: State) -> list[Problem]:
    """Return what is missing and skipped; steps that a host skipped for one reason are one problem."""
    from firsttouch.report.model import Problem  # noqa: PLC0415  (loads Jinja)

    check = {step.name: step.check for step in campaign_state.campaign.steps}
    hosts = f"hosts of {campaign_state.campaign.name}"

    def of(gap: Gap, kind: Kind, reason: str, name: str) -> Problem:
        return Problem(gap.step or gap.host or hosts, kind, reason, name, gap.host)

    missing_steps = [of(g, "failed", f"missing: {g.reason}", check.get(g.step, "")) for g in campaign_state.gaps]
    by_check: dict[str, list[Gap]] = {}
    for gap in campaign_state.skipped:
        by_check.setdefault(check[gap.step], []).append(gap)
    skipped = [of(g, "skipped", g.reason, name) for name, gaps in sorted(by_check.items()) for g in merged(gaps)]
    return missing_steps + skipped


def agree(records: Iterable[Record]) -> list[Record]:
    """Return *records*, invalid if their alignments differ from those of their aligner's default scenario.

    Every scenario must give the alignments of one instance, on whichever host it ran. The alignments that the
    valid default runs of the most hosts have are the right ones; if two are as frequent, none is. Without a valid
    run of the default scenario, nothing is compared.
    """
    records = list(records)
    hosts: dict[tuple[str, ...], dict[str, set[str]]] = {}
    for record in records:
        is_default = record.parameters.get("scenario") == DEFAULT_SCENARIO and record.status == "valid"
        if is_default and (digest := record.parameters.get("common_sha256")) is not None:
            hosts.setdefault(_input(record), {}).setdefault(digest, set()).add(record.host)
    right = {given: _most_frequent(of_digest) for given, of_digest in hosts.items()}

    def checked(record: Record) -> Record:
        digest = record.parameters.get("common_sha256")
        if digest is None or right.get(_input(record), digest) == digest:
            return record
        reason = f"its alignments differ from those of {DEFAULT_SCENARIO}"
        if right[_input(record)] is None:
            reason = f"the alignments of {DEFAULT_SCENARIO} differ between hosts, and none is the most frequent"
        return replace(record, status="invalid", reason=reason)

    return [checked(record) for record in records]


def _most_frequent(hosts: Mapping[str, Collection[str]]) -> str | None:
    """Return the digest that the most hosts have, None if several have as many."""
    ranked = sorted(hosts, key=lambda digest: len(hosts[digest]), reverse=True)
    is_tie = len(ranked) > 1 and len(hosts[ranked[0]]) == len(hosts[ranked[1]])
    return None if is_tie else ranked[0]


def _input(record: Record) -> tuple[str, ...]:
    return tuple(str(record.parameters.get(k)) for k in ("aligner", "dataset", "reads", "batch_bases"))


def _write(campaign_state: State, text: str, report: Callable[[Path], object] | None, clock: Clock) -> Path:
    """Write overview.md, state.json and the *report* into a new folder, and point the link ``report`` to it."""
    reports = campaign_state.campaign.folder / "reports"
    reports.mkdir(exist_ok=True)
    with atomic_files.scratch(reports / "report") as folder:
        folder.mkdir()
        (folder / "overview.md").write_text(text + "\n", encoding="utf-8")
        (folder / "state.json").write_text(dumps(campaign_state), encoding="utf-8")
        if report is not None:
            report(folder)
        # UTC: local times go back once a year, and differ between collectors in two time zones.
        now = datetime.datetime.fromtimestamp(clock.time(), datetime.UTC)
        final = reports / now.strftime("%Y-%m-%dT%H-%M-%S.%f")
        folder.rename(final)
    with atomic_files.replacing(campaign_state.campaign.folder / "report") as link:
        link.symlink_to(Path("reports") / final.name)
    _keep_newest(reports, final)
    return campaign_state.campaign.folder / "report"


def _keep_newest(reports: Path, present: Path) -> None:
    """Remove old reports, but never the *present* one.

    Their names are times, and those of unfinished ones begin with a dot.
    """
    others = sorted(folder for folder in reports.glob("[0-9]*") if folder != present)
    for folder in others[: len(others) - (KEPT - 1)] if len(others) >= KEPT else ():
        shutil.rmtree(folder, ignore_errors=True)


def _report(
    campaign_state: State,
    records: Sequence[Record],
    system: System,
    verdicts: Sequence[HostVerdict],
    folder: Path,
    *,
    common_losses: Mapping[str, CommonLoss | None],
) -> None:
    from firsttouch.report import model, pages  # noqa: PLC0415 - a large import

    drawn = set(_drawn(campaign_state, verdicts))
    lost = problems(campaign_state)
    if left_out := len(set(campaign_state.hosts) - drawn):
        why = (
            f"{left_out} of {len(campaign_state.hosts)} hosts have no figures: see overview.md and records.parquet"
        )
        lost.append(model.Problem("figures", "skipped", why, check=""))

    if records or lost:
        title = f"{campaign_state.campaign.kind} {campaign_state.campaign.name}"
        pages.build(
            records,
            folder,
            problems=lost,
            references=model.references_of(system),
            verdicts=verdicts,
            common_losses=common_losses,
            title=title,
            drawn=drawn,
        )


def _drawn(campaign_state: State, verdicts: Sequence[HostVerdict]) -> list[str]:
    """Return the hosts whose figures are drawn, those with the worst verdicts first."""
    severity = {v.host: ORDER.index(v.verdict) for v in verdicts}
    return sorted(campaign_state.hosts, key=lambda h: (-severity.get(h, len(ORDER) - 1), h))[:MOST_DRAWN]
