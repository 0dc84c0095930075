# SPDX-License-Identifier: Apache-2.0
"""The state of a campaign: what is finished, missing and skipped, and why."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from firsttouch.fleet import slurm
from firsttouch.fleet.campaigns import Campaign
from firsttouch.fleet.journal import FINISHED, Entry, Journal, Submission, submissions
from firsttouch.judge.verdict import HostVerdict

# ----------------------------------------------------------------------
# What is there of a campaign and what is missing, with the reason. Only reads; Slurm tells how jobs ended.


@dataclass(frozen=True)
class Gap:
    """What is not there: a step of a host, a step of any host (host ""), or a whole host (step "")."""

    host: str
    step: str
    reason: str

    @property
    def text(self) -> str:
        """Return it as one line."""
        return f"{' '.join(filter(None, (self.host, self.step))) or 'hosts'}: {self.reason}"


@dataclass(frozen=True)
class State:
    """The state of a campaign: hosts that came, finished steps of how many, skipped ones, and the gaps."""

    campaign: Campaign
    hosts: tuple[str, ...]
    finished: int
    wanted: int
    skipped: tuple[Gap, ...]
    gaps: tuple[Gap, ...]
    unsure: str = ""
    journals: Sequence[Journal] = field(default=(), repr=False)

    @property
    def whole(self) -> bool:
        """Tell whether nothing is missing."""
        return not self.gaps

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "campaign": str(self.campaign.folder),
            "kind": self.campaign.kind,
            "system": self.campaign.system,
            "dataset": self.campaign.dataset,
            "aligners": list(self.campaign.aligners),
            "effort": self.campaign.effort,
            "created": self.campaign.created,
            "hosts": list(self.hosts),
            "steps": {"finished": self.finished, "wanted": self.wanted},
            "missing": [{"host": g.host, "step": g.step, "reason": g.reason} for g in self.gaps],
            "skipped": [{"host": g.host, "step": g.step, "reason": g.reason} for g in self.skipped],
            "unsure": self.unsure,
        }


def missing_of(campaign: Campaign, journal: Journal) -> list[str]:
    """Return what a host did not finish of its steps, with the reason, as far as its own folder tells."""
    last = _last(journal.entries(whole=True))
    lost = [(s.name, last.get(s.name)) for s in campaign.steps]
    return [f"{name}: {_own_reason(e)}" for name, e in lost if not _is_finished(e)]


def _own_reason(entry: Entry | None) -> str:
    if entry is None:
        return "not begun"
    return entry.reason or ("begun and not finished" if entry.state == "began" else entry.state)


def state(campaign: Campaign) -> State:
    """Look at a campaign as it is now."""
    journals = campaign.hosts()
    entries = {j.host: j.entries(whole=True) for j in journals}
    damage: list[str] = []
    asked = submissions(campaign.folder, damage)
    jobs = {e.job for mine in entries.values() for e in mine if e.job} | {s.job for s in asked if s.job}
    ends = _Ends(jobs)
    look = _shared if campaign.shared else _each
    pairs = list(look(campaign, entries, asked, ends))
    finished = [(g, e) for g, e in pairs if _is_finished(e)]
    gaps = [g for g, e in pairs if not _is_finished(e)]
    gaps += [Gap(j.host, "", line) for j in journals for line in j.damage]
    gaps += [Gap("", "", line) for line in (*damage, *campaign.strangers())]
    return State(
        campaign=campaign,
        hosts=tuple(entries),
        finished=len(finished),
        wanted=sum(bool(g.step) for g, _ in pairs),
        skipped=tuple(Gap(g.host, g.step, e.reason) for g, e in finished if e and e.state == "skipped"),
        # Hosts first.
        gaps=tuple(sorted(gaps, key=lambda g: (bool(g.step), g.host))),
        unsure=ends.unsure,
        journals=tuple(journals),
    )


def _is_finished(entry: Entry | None) -> bool:
    return entry is not None and entry.state in FINISHED


def _last(entries: Sequence[Entry]) -> dict[str, Entry]:
    """Return how each step stands: finished once is finished, whatever another pass of it came to."""
    found: dict[str, Entry] = {}
    for entry in entries:
        if not _is_finished(found.get(entry.step)):
            found[entry.step] = entry
    return found


class _Ends:
    """How jobs ended, as Slurm accounts for them."""

    def __init__(self, jobs: set[str]) -> None:
        known = slurm.accounted(jobs)
        self.unsure = (
            "" if known is not None else "Slurm's accounting (sacct) does not answer: why jobs ended is unknown"
        )
        self.tries = known or []

    def of(self, job: str, host: str = "") -> str:
        """Return how a job ended, of its tries the last one on *host*."""
        mine = [t for t in self.tries if t.job == job and host in {"", t.hosts}] or [
            t for t in self.tries if t.job == job
        ]
        return mine[-1].text if mine else f"job {job}" if job else "no job of Slurm"

    def array(self, submission: Submission) -> list[slurm.Ended]:
        """Return the last try of all elements of a submission."""
        last = {t.job: t for t in self.tries if t.array == submission.job}
        return list(last.values())


def _reason(entry: Entry | None, ends: _Ends, otherwise: str) -> str:
    """Return why a step whose last line is *entry* is not finished."""
    if entry is None:
        return otherwise
    who = f"on {entry.host}"
    if entry.state == "began":
        return f"begun {who} at {entry.time} and not finished: {ends.of(entry.job, entry.host)}"
    how = f", {ends.of(entry.job, entry.host)}" if entry.job and entry.state == "stopped" else ""
    return f"{entry.state} {who}: {entry.reason}{how}"


def _shared(
    campaign: Campaign, entries: dict[str, list[Entry]], asked: Sequence[Submission], ends: _Ends
) -> Iterator[tuple[Gap, Entry | None]]:
    every = sorted((e for mine in entries.values() for e in mine), key=lambda e: e.time)
    last = _last(every)
    otherwise = f"not begun: {_submitted(asked, ends)}"
    for step in campaign.steps:
        entry, bridge = last.get(step.name), campaign.bridge(step)
        failed = bridge and bridge.name in last and not _is_finished(last[bridge.name])
        why = f"not begun: {bridge.name} comes first" if bridge and failed else otherwise
        yield Gap("", step.name, _reason(entry, ends, why)), entry


def _each(
    campaign: Campaign, entries: dict[str, list[Entry]], asked: Sequence[Submission], ends: _Ends
) -> Iterator[tuple[Gap, Entry | None]]:
    for host, mine in entries.items():
        last = _last(mine)
        ended = ends.of(mine[-1].job, host) if mine else "its job began nothing"
        for step in campaign.steps:
            entry = last.get(step.name)
            yield Gap(host, step.name, _reason(entry, ends, f"not begun: {ended}")), entry
    named = {host: s for s in asked for host in s.hosts}
    for host, submission in named.items():
        if host not in entries:
            yield Gap(host, "", f"it did not come: {_submitted([submission], ends)}"), None
    # Where hosts were not named, only their number is known.
    count = max((s.count for s in asked if not s.hosts), default=0) if not named else 0
    if count > len(entries):
        why = _submitted(asked, ends)
        yield Gap("", "", f"{count} were asked for, {len(entries)} came: {why}"), None


def _submitted(asked: Sequence[Submission], ends: _Ends) -> str:
    """Return what became of the jobs of some submissions: those that did not end well, counted."""
    if not asked:
        return "no job of Slurm"
    parts = []
    for submission in asked:
        if not submission.job:
            parts.append(submission.problem)
            continue
        tries = ends.array(submission)
        bad = Counter(t.text if len(tries) == 1 else t.state for t in tries if t.state != "COMPLETED")
        told = ", ".join(text if count == 1 else f"{count} x {text}" for text, count in bad.items())
        parts.append(told or f"job {submission.job}")
    return "; ".join(dict.fromkeys(parts))


def dumps(found: State) -> str:
    """Return the state as JSON text."""
    return json.dumps(found.to_dict(), indent=1) + "\n"


# ----------------------------------------------------------------------
# The overview of a campaign as text: what is missing first, then the hosts or the scenarios.

#: Lines of one kind that are listed; state.json has all of them.
_LISTED = 40


_NEXT = """\
Five hosts or more teach what to expect: `firsttouch baseline --system {system} {folder}`, then
`firsttouch validate --system {system} {folder}` judges each host by it. More passes decide as well: submit the
campaign again for these hosts, or at once with `firsttouch campaign submit … --passes 12`."""


def overview(found: State, verdicts: Sequence[HostVerdict]) -> str:
    """Return the overview in Markdown."""
    campaign = found.campaign
    effort = "" if campaign.effort == "full" else f", effort {campaign.effort}"
    parts = [
        f"# {campaign.kind} {campaign.name}: system {campaign.system}{effort}",
        f"{found.finished} of {found.wanted} steps are finished, on {len(found.hosts)} hosts.",
    ]
    if found.gaps:
        parts.append("## Missing\n" + _gaps(found.gaps))
    if found.unsure:
        parts.append(found.unsure + ".")
    if found.skipped:
        parts.append("## Skipped\n" + _gaps(found.skipped))
    if verdicts:
        counts = Counter(v.verdict for v in verdicts)
        told = ", ".join(f"{counts[w]} {w}" for w in ("fail", "invalid", "suspect", "pass") if counts[w])
        lines = [v.line() for v in sorted(verdicts, key=lambda v: (v.verdict == "pass", v.host))]
        parts.append(f"## Verdicts: {told}\n" + _listed(lines))
        if any(v.verdict == "suspect" and not v.missing for v in verdicts):
            parts.append("## Undecided hosts\n" + _NEXT.format(system=campaign.system, folder=campaign.folder))
    return "\n\n".join(parts)


def _gaps(gaps: Sequence[Gap]) -> str:
    """List gaps; the steps that a host misses for one reason are one line."""
    return _listed([gap.text for gap in merged(gaps)])


def merged(gaps: Sequence[Gap]) -> list[Gap]:
    """Return one gap for each host and reason, whose step names the first four steps and counts the others."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for gap in gaps:
        grouped.setdefault((gap.host, gap.reason), []).append(gap.step)
    named = {key: [s for s in steps if s] for key, steps in grouped.items()}
    return [
        Gap(host, ", ".join(steps[:4]) + (f" and {len(steps) - 4} more" if len(steps) > 4 else ""), reason)
        for (host, reason), steps in named.items()
    ]


def _listed(lines: Sequence[str]) -> str:
    more = [f"- and {len(lines) - _LISTED} more: state.json has all"] if len(lines) > _LISTED else []
    return "\n".join([*(f"- {line}" for line in lines[:_LISTED]), *more])
