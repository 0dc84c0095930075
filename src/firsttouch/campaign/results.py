# SPDX-License-Identifier: Apache-2.0
"""The results of a campaign (the records of all hosts, whose alignments must agree) and its missing results."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from firsttouch.campaign.state import State, unfinished_steps
from firsttouch.records.schema import Record
from firsttouch.scenarios.placement import parse_name


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
