# SPDX-License-Identifier: Apache-2.0
"""The overview of a campaign as text: what is missing first, then the hosts or the scenarios."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from firsttouch.campaign.state import Gap, State
from firsttouch.verdict import HostVerdict

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
