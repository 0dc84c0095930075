# SPDX-License-Identifier: Apache-2.0
"""Names the cause of a bad verdict where the signature shows it, by the rules of causes.toml."""

from __future__ import annotations

import functools
import statistics
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

from firsttouch.judge.verdict import Finding
from firsttouch.systems.facts import Facts

#: Sizes that fit every processor's first cache, and that fit none.
_CACHE, _MEMORY = 32 << 10, 32 << 20
#: A share is that of a missing memory channel within this, or a quarter of a channel's share where that is less.
_NEAR = 0.03
#: What the others have at least where only some of the groups are meant.
_HEALTHY = 0.97
_KEYS = frozenset(
    {
        "count",
        "is",
        "setting",
        "slow",
        "below",
        "at_least",
        "check",
        "relation",
        "size",
        "by",
        "groups",
        "share",
        "channels",
        "alike",
    }
)


@dataclass(frozen=True)
class Rule:
    """A cause: its *name*, the *text* that tells it, and the conditions that must all hold."""

    name: str
    text: str
    when: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class Place:
    """What rules look at of a finding: its NUMA nodes and their relation, its size, what is left of the value.

    *bad*: its verdict is no pass.
    """

    nodes: Sequence[int]
    bank: Any
    relation: str
    size: int
    left: float | None
    bad: bool


@dataclass(frozen=True)
class Signs:
    """What the rules look at: findings with what is expected, and counts and settings of the host by metric."""

    findings: Sequence[Finding]
    values: Mapping[str, float]
    facts: Facts | None

    @functools.cached_property
    def places(self) -> Mapping[str, Sequence[Place]]:
        """The findings with values, by check."""
        found: dict[str, list[Place]] = {}
        for finding in self.findings:
            if finding.values:
                found.setdefault(finding.check, []).append(_place(finding))
        return found


@functools.cache
def rules() -> tuple[Rule, ...]:
    """Return the rules of causes.toml, in their order."""
    data = tomllib.loads((resources.files(__package__) / "causes.toml").read_text(encoding="utf-8"))
    found = []
    for entry in data["cause"]:
        for condition in entry["when"]:
            if unknown := set(condition) - _KEYS:
                raise ValueError(f"causes.toml: {entry['name']}: unknown keys {sorted(unknown)}")
        found.append(Rule(entry["name"], entry["text"], tuple(entry["when"])))
    return tuple(found)


def causes(signs: Signs) -> list[str]:
    """Return the causes whose signature *signs* show, each as ``name: what shows it``, the likeliest first."""
    found: dict[str, str] = {}
    for rule in rules():
        told: dict[str, Any] | None = {}
        for condition in rule.when:
            one = _holds(condition, signs)
            if one is None:
                told = None
                break
            told = {**one, **(told or {})}
        if told is not None:
            found.setdefault(rule.name, f"{rule.name}: {rule.text.format(**told)}")
    return list(found.values())


def _holds(condition: Mapping[str, Any], signs: Signs) -> dict[str, Any] | None:
    """Return what a condition that holds has to tell, None for one that does not."""
    if "count" in condition:
        return _count(condition["count"], condition["is"], signs)
    if "slow" in condition:
        slow = any(f.verdict != "pass" and f.unit != "1" for f in signs.findings)
        return {} if slow == condition["slow"] else None
    if "setting" in condition:
        value = signs.values.get(condition["setting"])
        low, high = condition.get("at_least", float("-inf")), condition.get("below", float("inf"))
        return {"setting": f"{value:g}"} if value is not None and low <= value < high else None
    return _groups(condition, signs)


def _count(
    metric: Literal["numa_nodes", "pus"], how: Literal["fewer", "more", "one", "halved"], signs: Signs
) -> dict[str, Any] | None:
    found = signs.values.get(metric)
    if found is None or signs.facts is None:
        return None
    expected = int(getattr(signs.facts, metric))
    holds = {
        "fewer": found < expected,
        "more": found > expected,
        "one": found == 1 < expected,
        "halved": signs.facts.threads_per_core > 1 and found * signs.facts.threads_per_core == expected,
    }[how]
    if not holds:
        return None
    return {"found": int(found), "expected": expected, "which": _lost_nodes(int(found), signs)}


def _lost_nodes(count: int, signs: Signs) -> str:
    """Return which NUMA nodes are missing as a text, where the metrics of the other ones show it."""
    seen = {n for places in signs.places.values() for p in places for n in p.nodes}
    lost = sorted(set(signs.facts.numa_node_numbers if signs.facts else ()) - seen)
    if len(seen) != count or not lost:
        return ""
    one = len(lost) == 1
    return f"NUMA node{'' if one else 's'} {', '.join(map(str, lost))} {'is' if one else 'are'} missing: "


def _groups(condition: Mapping[str, Any], signs: Signs) -> dict[str, Any] | None:
    grouped: dict[str, list[tuple[float, bool]]] = {}
    for place in _chosen(condition, signs):
        if place.left is not None and (key := _key(condition["by"], place)):
            grouped.setdefault(key, []).append((place.left, place.bad))
    low, high = condition["share"]
    middles = {key: statistics.median(share for share, _ in mine) for key, mine in grouped.items()}
    meant = {}
    for key, mine in grouped.items():
        shares, bad = [share for share, _ in mine], sum(is_bad for _, is_bad in mine)
        if (
            low <= middles[key] < high
            # What is slow has to be found slow: a median of few noisy passes shows no cause.
            and (high > 1 or 2 * bad >= len(mine))
            and (not condition.get("channels") or _lacks_channel(middles[key], key, signs.facts))
            and max(shares) - min(shares) <= condition.get("alike", float("inf"))
        ):
            meant[key] = middles[key]
    if condition["groups"] != "all" and any(m < _HEALTHY for key, m in middles.items() if key not in meant):
        return None
    holds = {"one": len(meant) == 1 < len(grouped), "some": 0 < len(meant) < len(grouped), "all": bool(meant)}
    if not holds[condition["groups"]] or (condition["groups"] == "all" and len(meant) < len(grouped)):
        return None
    key = min(meant, key=lambda k: meant[k])
    return {condition["by"]: key, "share": f"{meant[key]:.0%}"}


def _lacks_channel(share: float, bank: str, facts: Facts | None) -> bool:
    """Tell whether a share of the bandwidth of *bank* is that of one or two memory channels fewer than it has."""
    if facts is None or facts.memory is None or not facts.memory.channels_per_package:
        return any(abs(share - (c - 1) / c) <= min(_NEAR, 1 / (4 * c)) for c in (2, 3, 4, 6, 8, 12))
    packages = dict(zip(map(str, facts.numa_node_numbers), facts.package_of_numa_node, strict=True))
    package = packages.get(bank)
    nodes = sum(p == package for p in packages.values()) if package is not None else 1
    channels = max(1, facts.memory.channels_per_package // nodes)
    near = min(_NEAR, 1 / (4 * channels))
    return any(abs(share - (channels - gone) / channels) <= near for gone in (1, 2) if gone < channels)


def _chosen(condition: Mapping[str, Any], signs: Signs) -> Iterator[Place]:
    relation, size = condition.get("relation", ""), condition.get("size", "")
    for place in signs.places.get(condition["check"], ()):
        if (
            relation in {"", place.relation}
            and (size != "cache" or 0 < place.size <= _CACHE)
            and (size != "memory" or place.size >= _MEMORY)
        ):
            yield place


def _place(finding: Finding) -> Place:
    nodes, bank = finding.case.get("pu_nodes", ()), finding.case.get("bank")
    local = len(nodes) == 1 and nodes[0] == bank
    remote = len(nodes) == 1 and bank is not None and nodes[0] != bank
    relation = "local" if local else "remote" if remote else "?"
    return Place(
        nodes, bank, relation, finding.case.get("size_bytes", 0), _left(finding), finding.verdict != "pass"
    )


def _key(by: str, place: Place) -> str:
    if len(place.nodes) != 1 or place.bank is None:
        return ""
    if by == "pair":  # a link has two directions
        return " and ".join(map(str, sorted({place.nodes[0], place.bank})))
    return str(place.bank if by == "bank" else place.nodes[0])


def _left(finding: Finding) -> float | None:
    """Return what is left of what is expected of a metric (1: all of it, below: worse)."""
    if finding.reference is None or not finding.reference.value:
        return None
    share = statistics.median(finding.values) / finding.reference.value
    return share if finding.better != "lower" else 1 / share if share else None
