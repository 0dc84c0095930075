# SPDX-License-Identifier: Apache-2.0
"""The report of a campaign from the results so far; it can be repeated at any time."""

from __future__ import annotations

import datetime
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from firsttouch.campaign.campaigns import Campaign
from firsttouch.campaign.journal import full_disk_as_missing
from firsttouch.campaign.state import State, dumps, finished_records, markdown_list, overview, state
from firsttouch.clock import SYSTEM_CLOCK, Clock
from firsttouch.errors import one_line
from firsttouch.execution.progress import say
from firsttouch.fleet import verdict_log
from firsttouch.fleet.measuring import campaign_findings
from firsttouch.judge.findings import Findings
from firsttouch.judge.judging import undecided_cases
from firsttouch.judge.verdict import ORDER, HostVerdict
from firsttouch.records import atomic_files
from firsttouch.report.writing import report_of
from firsttouch.systems.definition import load

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
        (folder / "state.json").write_text(dumps(campaign_state), encoding="utf-8")
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
