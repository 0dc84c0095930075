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

from firsttouch.systems import Facts
from firsttouch.verdict.model import Finding

#: Sizes that fit every processor's first cache, and that fit none.
_CACHE, _MEMORY = 32 << 10, 32 << 20
_NEAR = 0.03
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
        "near",
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
    """What rules look at of a finding: its NUMA nodes and their relation, its size, what is left of the value."""

    nodes: Sequence[int]
    bank: Any
    relation: str
    size: int
    left: float | None


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
    return {"found": int(found), "expected": expected} if holds else None


def _groups(condition: Mapping[str, Any], signs: Signs) -> dict[str, Any] | None:
    grouped: dict[str, list[float]] = {}
    for place in _chosen(condition, signs):
        if place.left is not None and (key := _key(condition["by"], place)):
            grouped.setdefault(key, []).append(place.left)
    low, high = condition["share"]
    meant = {}
    for key, shares in grouped.items():
        middle = statistics.median(shares)
        near = condition.get("near")
        if (
            low <= middle < high
            and (near is None or any(abs(middle - n) <= _NEAR for n in near))
            and max(shares) - min(shares) <= condition.get("alike", float("inf"))
        ):
            meant[key] = middle
    holds = {"one": len(meant) == 1 < len(grouped), "some": 0 < len(meant) < len(grouped), "all": bool(meant)}
    if not holds[condition["groups"]] or (condition["groups"] == "all" and len(meant) < len(grouped)):
        return None
    key = min(meant, key=lambda k: meant[k])
    return {condition["by"]: key, "share": f"{meant[key]:.0%}"}


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
    return Place(nodes, bank, relation, finding.case.get("size_bytes", 0), _left(finding))


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
