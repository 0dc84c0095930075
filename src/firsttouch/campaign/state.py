# SPDX-License-Identifier: Apache-2.0
"""The state of a campaign: finished, missing and skipped steps with reasons, its results, and an overview.

This module writes no files. Slurm's accounting states how jobs ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from firsttouch.campaign.campaigns import Campaign
from firsttouch.campaign.journal import FINISHED, Entry, Journal, Submission, submissions
from firsttouch.campaign.journal import State as StepState
from firsttouch.campaign.leases import abandoned_holders
from firsttouch.documents import attributes
from firsttouch.errors import first_of, one_line
from firsttouch.execution import slurm
from firsttouch.records.schema import Record
from firsttouch.scenarios.placement import parse_name

#: Where a host was when it died in a job.
SILENT = "it stopped answering"


class Gap(Struct, frozen=True):
    """A missing step of a host, or a missing host (*step* ""); *host* is "" for hosts whose names are unknown."""

    host: str
    step: str
    reason: str

    @property
    def text(self) -> str:
        """The gap as one line."""
        return f"{' '.join(filter(None, (self.host, self.step))) or 'hosts'}: {self.reason}"


class State(Struct, frozen=True):
    """The state of a campaign: the hosts with a journal, *finished* of *wanted* steps, and the gaps.

    *skipped* and *found* are finished steps: those that a host cannot run, and those that prove a defect. *unsure*
    is a sentence if Slurm's accounting does not answer.
    """

    campaign: Campaign
    hosts: tuple[str, ...]
    finished: int
    wanted: int
    skipped: tuple[Gap, ...]
    found: tuple[Gap, ...]
    gaps: tuple[Gap, ...]
    #: Gaps of hosts that stopped answering in their last job, with the step.
    silent: Mapping[str, Gap] = {}
    unsure: str = ""
    journals: Sequence[Journal] = ()

    @property
    def whole(self) -> bool:
        """Return whether the campaign is complete."""
        return not self.gaps

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "campaign": str(self.campaign.folder),
            **attributes(self.campaign, "kind", "system", "dataset", "aligners", "effort", "created"),
            "hosts": list(self.hosts),
            "steps": {"finished": self.finished, "wanted": self.wanted},
            "missing": [asdict(gap) for gap in self.gaps],
            "skipped": [asdict(gap) for gap in self.skipped],
            "found": [asdict(gap) for gap in self.found],
            "unsure": self.unsure,
        }


def unfinished_steps(campaign: Campaign, journal: Journal) -> dict[str, str]:
    """Return the steps that a host did not finish, with the reasons, by its journal alone."""
    last = _last(journal.entries(whole=True))
    names = (step.name for step in campaign.steps)
    return {name: _own_reason(last.get(name)) for name in names if not _is_finished(last.get(name))}


def missing_of(campaign: Campaign, journal: Journal) -> list[str]:
    """Return a line for each step that a host did not finish (see :func:`unfinished`)."""
    return [f"{name}: {reason}" for name, reason in unfinished_steps(campaign, journal).items()]


def last_step(campaign: Campaign, entries: Sequence[Entry]) -> tuple[str, str]:
    """Return the last step of the *campaign* in *entries*, and "during STEP" or "after STEP" ("": no step)."""
    names = {step.name for step in campaign.steps}
    last = next((entry for entry in reversed(entries) if entry.step in names), None)
    if last is None:
        return "", "before its first step"
    return last.step, f"{'during' if last.state == 'began' else 'after'} {last.step}"


def without_superseded(states: Sequence[State]) -> list[State]:
    """Return the states of campaigns without the gaps that later campaigns of the same system have filled.

    A missing step of a host is filled by a later campaign in which the host finished that step, and a missing host
    by later campaigns in which it finished all steps.
    """
    finished: dict[str, set[tuple[str, str]]] = {}
    current = {}
    for number in sorted(range(len(states)), key=lambda number: states[number].campaign.created, reverse=True):
        seen = states[number]
        later = finished.setdefault(seen.campaign.system, set())
        current[number] = replace(seen, gaps=tuple(gap for gap in seen.gaps if not _is_filled(gap, seen, later)))
        later |= {(j.host, e.step) for j in seen.journals for e in j.entries(whole=True) if _is_finished(e)}
    return [current[number] for number in range(len(states))]


def _is_filled(gap: Gap, seen: State, later: Set[tuple[str, str]]) -> bool:
    """Return whether later campaigns, which finished the steps of hosts in *later*, fill a *gap*."""
    if not gap.host or (not gap.step and gap.host in seen.hosts):  # a damaged file
        return False
    steps = [gap.step] if gap.step else [step.name for step in seen.campaign.steps]
    return all((gap.host, step) in later for step in steps)


def _own_reason(entry: Entry | None) -> str:
    if entry is None:
        return "not started"
    return entry.reason or ("started and not finished" if entry.state == "began" else entry.state)


def state(campaign: Campaign) -> State:
    """Return the present state of a campaign."""
    journals = campaign.hosts()
    entries = {j.host: j.entries(whole=True) for j in journals}
    damage: list[str] = []
    submitted = submissions(campaign.folder, damage)
    jobs = {e.job for lines in entries.values() for e in lines if e.job} | {s.job for s in submitted if s.job}
    ends = _Ends(jobs)
    pairs = list(_steps_of_hosts(campaign, entries, submitted, ends))
    gaps = [gap for gap, entry in pairs if not _is_finished(entry)]
    silent = _silent_hosts(campaign, entries, ends)
    stopped = {(gap.host, gap.step) for gap in silent.values()}
    gaps = [*silent.values(), *(gap for gap in gaps if (gap.host, gap.step) not in stopped)]
    gaps += [Gap(j.host, "", line) for j in journals for line in j.damage]
    gaps += [Gap("", "", line) for line in (*damage, *campaign.strangers())]

    def reached(word: StepState) -> tuple[Gap, ...]:
        return tuple(
            Gap(gap.host, gap.step, entry.reason) for gap, entry in pairs if entry and entry.state == word
        )

    return State(
        campaign=campaign,
        hosts=tuple(entries),
        finished=sum(_is_finished(entry) for _, entry in pairs),
        wanted=sum(bool(gap.step) for gap, _ in pairs),
        skipped=reached("skipped"),
        found=reached("found"),
        # Missing hosts come before missing steps.
        gaps=tuple(sorted(gaps, key=lambda g: (bool(g.step), g.host))),
        silent=silent,
        unsure=ends.unsure,
        journals=tuple(journals),
    )


def _is_finished(entry: Entry | None) -> bool:
    return entry is not None and entry.state in FINISHED


def _last(entries: Sequence[Entry]) -> dict[str, Entry]:
    """Return the entry that decides the state of each step: the first finished one, else the last."""
    last: dict[str, Entry] = {}
    for entry in entries:
        if not _is_finished(last.get(entry.step)):
            last[entry.step] = entry
    return last


class _Ends:
    """How *jobs* ended, by Slurm's accounting."""

    def __init__(self, jobs: set[str]) -> None:
        tries = slurm.job_tries(jobs)
        silent = "Slurm's accounting (sacct) does not answer, so it is unknown why jobs ended"
        self.unsure = silent if tries is None else ""
        self.tries = tries or []

    def last_end(self, job: str, host: str = "") -> str:
        """Return how the last try of a job ended, preferably the try on *host*."""
        tries = [t for t in self.tries if t.job == job]
        on_host = [t for t in tries if host in {"", t.hosts}]
        if tries:
            return (on_host or tries)[-1].text
        return f"job {job}" if job else "no job of Slurm"

    def array(self, submission: Submission) -> list[slurm.Ended]:
        """Return the last try of each element of a submission."""
        return list({t.job: t for t in self.tries if t.array == submission.job}.values())


def _silent_hosts(campaign: Campaign, entries: Mapping[str, Sequence[Entry]], ends: _Ends) -> dict[str, Gap]:
    """Return the gaps of hosts that stopped answering: their job has ended, and they never left it.

    Journals do not show a host that died while it repeated its steps.
    """
    gaps = {}
    for host, holder in abandoned_holders(campaign.folder / "claims").items():
        if host not in entries:
            continue
        step, when = last_step(campaign, entries[host])
        gaps[host] = Gap(host, step, f"{SILENT} {when}: {ends.last_end(holder.job, host)}")
    return gaps


def _reason(entry: Entry | None, ends: _Ends, default: str) -> str:
    """Return why a step with the last line *entry* is not finished; *default* without any line."""
    if entry is None:
        return default
    where = f"on {entry.host}"
    if entry.state == "began":
        return f"started {where} at {entry.time} and not finished: {ends.last_end(entry.job, entry.host)}"
    end = f", {ends.last_end(entry.job, entry.host)}" if entry.job and entry.state == "stopped" else ""
    return f"{entry.state} {where}: {entry.reason}{end}"


def _steps_of_hosts(
    campaign: Campaign, entries: dict[str, list[Entry]], submitted: Sequence[Submission], ends: _Ends
) -> Iterator[tuple[Gap, Entry | None]]:
    """Yield each step of each host with its entry, and its gap if the step is not finished; then missing hosts."""
    for host, lines in entries.items():
        last = _last(lines)
        end = ends.last_end(lines[-1].job, host) if lines else "its job started no step"
        for step in campaign.steps:
            entry = last.get(step.name)
            yield Gap(host, step.name, _reason(entry, ends, f"not started: {end}")), entry
    named = {host: s for s in submitted for host in s.hosts}
    for host, submission in named.items():
        if host not in entries:
            yield Gap(host, "", f"it did not take part: {_submitted([submission], ends)}"), None
    # Without names of hosts, only their number can be compared.
    count = max((s.count for s in submitted if not s.hosts), default=0) if not named else 0
    if count > len(entries):
        why = _submitted(submitted, ends)
        yield Gap("", "", f"{count} were requested, {len(entries)} took part: {why}"), None


def _submitted(submitted: Sequence[Submission], ends: _Ends) -> str:
    """Return how the jobs of some submissions ended; failed ones are counted by their state."""
    if not submitted:
        return "no job of Slurm"
    parts = []
    for submission in submitted:
        if not submission.job:
            parts.append(submission.problem)
            continue
        tries = ends.array(submission)
        bad = Counter(t.text if len(tries) == 1 else t.state for t in tries if t.state != "COMPLETED")
        texts = (text if count == 1 else f"{count} x {text}" for text, count in bad.items())
        parts.append(", ".join(texts) or f"job {submission.job}")
    return "; ".join(dict.fromkeys(parts))


# ----------------------------------------------------------------------
# The records of all hosts, whose alignments must agree, and the missing results


def finished_records(campaign_state: State) -> list[Record]:
    """Return the records of all finished steps; those with differing alignments become invalid."""
    return agree(record for journal in campaign_state.journals for record in journal.all_records())


def missing_results(campaign_state: State) -> dict[str, list[str]]:
    """Return, by host, the missing results and why; named hosts that did not take part are included."""
    gaps = {(gap.host, gap.step) for gap in campaign_state.gaps}
    by_host = {
        j.host: [
            f"{step}: {reason}"
            for step, reason in unfinished_steps(campaign_state.campaign, j).items()
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


def agree(records: Iterable[Record]) -> list[Record]:
    """Return *records*, marked invalid if their alignments differ from the aligner's default runs.

    Every scenario must give the alignments of one instance, on any host. A host's default run is one instance
    without a policy, with the most threads. The correct alignments are those that valid default runs of the most
    hosts have; if two are equally frequent, neither is correct. Without a valid default run, nothing is compared.
    """
    records = list(records)
    plain: dict[tuple[tuple[str, ...], str], list[tuple[int, str]]] = {}
    for record in records:
        name = parse_name(str(record.parameters.get("scenario")))
        digest = record.parameters.get("common_sha256")
        if name and name.is_plain and record.status == "valid" and digest is not None:
            plain.setdefault((_input(record), record.host), []).append((name.threads or 0, digest))
    hosts: dict[tuple[str, ...], dict[str, set[str]]] = {}
    for (given, host), runs in plain.items():
        for threads, digest in runs:
            if threads == max(runs)[0]:
                hosts.setdefault(given, {}).setdefault(digest, set()).add(host)
    right = {given: _most_frequent(of_digest) for given, of_digest in hosts.items()}

    def checked(record: Record) -> Record:
        digest = record.parameters.get("common_sha256")
        if digest is None or right.get(_input(record), digest) == digest:
            return record
        reason = "its alignments differ from the alignments of one instance without a policy"
        if right[_input(record)] is None:
            reason = "the alignments of one instance differ between hosts, and none is the most frequent"
        return replace(record, status="invalid", reason=reason)

    return [checked(record) for record in records]


def _most_frequent(hosts: Mapping[str, Collection[str]]) -> str | None:
    """Return the digest that the most hosts have, None if several are equally frequent."""
    ranked = sorted(hosts, key=lambda digest: len(hosts[digest]), reverse=True)
    is_tie = len(ranked) > 1 and len(hosts[ranked[0]]) == len(hosts[ranked[1]])
    return None if is_tie else ranked[0]


def _input(record: Record) -> tuple[str, ...]:
    return tuple(str(record.parameters.get(k)) for k in ("aligner", "dataset", "reads", "batch_bases"))


# ----------------------------------------------------------------------
# The overview as text

#: Lines of a list in the overview; state.json has all of them.
_LISTED = 40


def overview(campaign_state: State) -> str:
    """Return the overview in Markdown: finished, missing and skipped steps."""
    campaign = campaign_state.campaign
    effort = "" if campaign.effort == "full" else f", effort {campaign.effort}"
    parts = [
        f"# {campaign.kind} {campaign.name}: system {campaign.system}{effort}",
        f"{campaign_state.finished} of {campaign_state.wanted} steps are finished, "
        f"on {len(campaign_state.hosts)} hosts.",
    ]
    if campaign_state.gaps:
        parts.append("## Missing\n" + _gaps(campaign_state.gaps))
    if campaign_state.unsure:
        parts.append(campaign_state.unsure + ".")
    if campaign_state.found:
        parts.append("## Found\n" + _gaps(campaign_state.found))
    if campaign_state.skipped:
        parts.append("## Skipped\n" + _gaps(campaign_state.skipped))
    return "\n\n".join(parts)


def _gaps(gaps: Sequence[Gap]) -> str:
    return markdown_list([gap.text for gap in merge(gaps)])


def merge(gaps: Sequence[Gap]) -> list[Gap]:
    """Return one gap per host and reason, which names the first four steps and counts the others."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for gap in gaps:
        steps = grouped.setdefault((gap.host, gap.reason), [])
        steps += [gap.step] if gap.step else []
    return [Gap(host, first_of(steps, 4), reason) for (host, reason), steps in grouped.items()]


def markdown_list(lines: Sequence[str]) -> str:
    """Return the first lines as a list in Markdown, and the number of the others."""
    more = [f"- and {len(lines) - _LISTED} more: state.json has all"] if len(lines) > _LISTED else []
    return "\n".join([*(f"- {one_line(line)}" for line in lines[:_LISTED]), *more])
