# SPDX-License-Identifier: Apache-2.0
"""Makes the report of a campaign of what is there by now; it may be made any number of times."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from firsttouch.execution.progress import say
from firsttouch.fleet.campaigns import DEFAULT_SCENARIO, Campaign
from firsttouch.fleet.journal import room
from firsttouch.fleet.state import State, dumps, merged, missing_of, overview, state
from firsttouch.judge import samples_table, verdict_file
from firsttouch.judge.judging import Judged, judged, undecided_cases
from firsttouch.judge.verdict import HostVerdict
from firsttouch.records import atomic_files
from firsttouch.records.schema import Record
from firsttouch.systems.definition import System, load

#: A report draws five figures per host: of more hosts than these, only the worst and the first are drawn.
MOST_DRAWN = 6
#: Reports that a campaign keeps, the newest ones: it is collected again by each job that ends.
KEPT = 3


@dataclass(frozen=True)
class Collected:
    """What was collected: the state, the verdicts where hosts are judged, the report's folder, the overview.

    *judged* are the verdicts in columns.
    """

    state: State
    verdicts: tuple[HostVerdict, ...]
    report: Path
    text: str
    judged: Judged | None = None


def collect(campaign: Campaign, *, draw: bool = True) -> Collected:
    """Look at all that is there and write the report into a new folder, which ``report`` points to."""
    found = state(campaign)
    system = load(campaign.system)
    records = measured(found)
    every = judged(samples_table.of_records(records, system.name), system, missing=missing(found))
    verdicts = tuple(every.of(host) for host in every.hosts) if campaign.judged else ()
    _state_verdicts(found, verdicts)
    text = overview(found, verdicts)
    with room(campaign.folder):
        folder = _write(found, records, system, verdicts, text, draw=draw)
    return Collected(found, verdicts, folder, text, every if campaign.judged else None)


def _state_verdicts(found: State, verdicts: Sequence[HostVerdict]) -> None:
    """Put the fleet's verdicts in the place of those that each host has of itself."""
    measured_at = {journal.host: journal.measured_at() for journal in found.journals}
    for verdict in verdicts:
        if when := measured_at.get(verdict.host):
            try:
                verdict_file.write(verdict, when, verdict_file.folder() / verdict.host)
            except OSError as error:
                say(f"firsttouch: {verdict_file.folder()}: {error.strerror}: the verdicts are only in the report")
                return


def undecided_hosts(collected: Collected, passes: int) -> list[str]:
    """Return the suspect hosts of which more passes, *passes* at most, may decide something."""
    every = collected.judged
    if every is None:
        return []
    return [
        v.host
        for v in collected.verdicts
        if v.verdict == "suspect" and v.host in collected.state.hosts and undecided_cases(every, v.host, passes)
    ]


def measured(found: State) -> list[Record]:
    """Return the records of all steps that ended; those whose alignments differ are invalid."""
    return agree(r for j in found.journals for _, some in j.measured() for r in some)


def missing(found: State) -> dict[str, list[str]]:
    """Return what is missing by host, with the reason: of every host that came, and of named ones that did not."""
    if found.campaign.shared:  # no host had to do anything in particular
        return {j.host: [] for j in found.journals}
    of = {j.host: missing_of(found.campaign, j) for j in found.journals}
    for gap in found.gaps:
        if gap.host and not gap.step:
            of.setdefault(gap.host, []).append(gap.reason)
    return of


def agree(records: Iterable[Record]) -> list[Record]:
    """Return *records* with those invalid whose alignments differ from their aligner's default scenario.

    Every scenario's alignments have to be those of one instance, on whichever host it ran. Where the default
    has not been run yet, nothing is said of them.
    """
    every = list(records)
    wanted = {
        _data(r): r.parameters["common_sha256"]
        for r in every
        if r.parameters.get("scenario") == DEFAULT_SCENARIO and "common_sha256" in r.parameters
    }
    return [r if _same(r, wanted.get(_data(r))) else _differing(r) for r in every]


def _data(record: Record) -> tuple[str, ...]:
    return tuple(str(record.parameters.get(k)) for k in ("aligner", "dataset", "reads", "batch_bases"))


def _same(record: Record, wanted: str | None) -> bool:
    return wanted is None or record.parameters.get("common_sha256", wanted) == wanted


def _differing(record: Record) -> Record:
    return replace(record, status="invalid", reason=f"its alignments differ from those of {DEFAULT_SCENARIO}")


def _write(
    found: State,
    records: Sequence[Record],
    system: System,
    verdicts: Sequence[HostVerdict],
    text: str,
    *,
    draw: bool,
) -> Path:
    """Write overview.md, state.json and the report beside each other, and let ``report`` point to them."""
    reports = found.campaign.folder / "reports"
    reports.mkdir(exist_ok=True)
    with atomic_files.scratch(reports / "report") as partial:
        partial.mkdir()
        (partial / "overview.md").write_text(text + "\n", encoding="utf-8")
        (partial / "state.json").write_text(dumps(found), encoding="utf-8")
        if draw and (records or found.gaps):
            _report(found, records, system, verdicts, partial)
        stamp = datetime.datetime.now().astimezone().strftime("%Y-%m-%dT%H-%M-%S.%f")
        final = reports / stamp
        partial.rename(final)
    with atomic_files.replacing(found.campaign.folder / "report") as link:
        link.symlink_to(Path("reports") / final.name)
    _keep_newest(reports)
    return found.campaign.folder / "report"


def _keep_newest(reports: Path) -> None:
    """Remove old reports; their names are times, and unfinished ones begin with a dot."""
    for folder in sorted(reports.glob("[0-9]*"))[:-KEPT]:
        shutil.rmtree(folder, ignore_errors=True)


def _report(
    found: State, records: Sequence[Record], system: System, verdicts: Sequence[HostVerdict], folder: Path
) -> None:
    from firsttouch.report import model, pages  # noqa: PLC0415  (loads the plotting library, which no other command needs)

    drawn = set(_drawn(found, verdicts))
    check = {s.name: s.argv[1] if s.argv[0] == "measure" else "placement" for s in found.campaign.steps}
    problems = [
        model.Problem(
            g.text.split(": ", 1)[0], "failed", f"missing: {g.reason}", g.host, check=check.get(g.step, "")
        )
        for g in found.gaps
    ]
    for name in sorted({check.get(g.step, "") for g in found.skipped}):
        skipped = merged([g for g in found.skipped if check.get(g.step, "") == name])
        problems += [model.Problem(g.step, "skipped", g.reason, g.host, check=name) for g in skipped]
    if left_out := len(set(found.hosts) - drawn):
        why = f"{left_out} of {len(found.hosts)} hosts are not drawn: overview.md and records.parquet have them"
        problems.append(model.Problem("figures", "skipped", why, check=""))

    def reference(record: Record) -> model.Reference | None:
        known = system.reference(record.check, record.metric, record.parameters) if record.judged else None
        return model.Reference(known.value, known.minimum, known.maximum, known.source) if known else None

    if records or problems:
        title = f"{found.campaign.kind} {found.campaign.name}"
        pages.build(
            records,
            folder,
            problems=problems,
            references=reference,
            verdicts=verdicts,
            title=title,
            drawn=drawn,
        )


def _drawn(found: State, verdicts: Sequence[HostVerdict]) -> list[str]:
    """Return the hosts whose figures are drawn: all, or of many the worst by verdict."""
    order = ["fail", "invalid", "suspect", "pass"]
    word = {v.host: order.index(v.verdict) for v in verdicts}
    return sorted(found.hosts, key=lambda h: (word.get(h, 0), h))[:MOST_DRAWN]
