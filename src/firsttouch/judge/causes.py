# SPDX-License-Identifier: Apache-2.0
"""Names possible causes of a fail if the findings of the host fit a signature, by the rules of causes.toml."""

from __future__ import annotations

import functools
import itertools
import statistics
import string
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from firsttouch import documents
from firsttouch.judge.verdict import Finding
from firsttouch.systems.facts import Facts

#: Sizes in bytes: up to the first fits every processor's first cache, from the second on no cache fits.
_CACHE, _MEMORY = 32 << 10, 32 << 20
#: A share is that of a missing memory channel within this, or within a quarter of a channel's share if that is
#: less.
_NEAR = 0.03
#: Without facts: usual numbers of channels of a bank, and how near a share must be (in shares of a channel).
_USUAL_CHANNELS, _NEAR_UNKNOWN = (2, 3, 4, 6, 8), 1 / 8
#: The least share of all other groups if a condition is about some of the groups.
_HEALTHY = 0.97
_NUMBER = {"type": "number"}
#: The keys of a condition with their forms.
_KEYS: dict[str, Any] = {
    "count": {"enum": ["numa_nodes", "pus"]},
    "is": {"enum": ["fewer", "more", "one", "halved"]},
    "setting": {"type": "string"},
    "slow": {"type": "boolean"},
    "below": _NUMBER,
    "at_least": _NUMBER,
    "missing": {"type": "string"},
    "check": {"type": "string"},
    "metric": {"type": "string"},
    "where": {"type": "object"},
    "relation": {"enum": ["local", "remote"]},
    "size": {"enum": ["cache", "memory"]},
    "by": {"enum": ["bank", "pu_node", "pair", "shared"]},
    "groups": {"enum": ["one", "some", "any", "all"]},
    "share": {"type": "array", "items": _NUMBER, "minItems": 2, "maxItems": 2},
    "channels": {"const": True},
    "alike": _NUMBER,
    "every": {"const": True},
    "only": {"const": True},
}


@dataclass(frozen=True)
class _Condition:
    """A kind of condition: the keys that it needs, those that it may have, and the fields that a text gets."""

    needed: tuple[str, ...]
    optional: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()


#: The key that tells the kind of a condition -> the kind.
_KINDS = {
    "count": _Condition(("count", "is"), (), ("found", "expected", "which")),
    "slow": _Condition(("slow",)),
    "missing": _Condition(("missing",), ("where",)),
    "setting": _Condition(("setting",), ("at_least", "below"), ("setting",)),
    "check": _Condition(
        ("check", "by", "groups", "share"),
        ("metric", "where", "relation", "size", "channels", "alike", "every", "only"),
        ("share",),  # and the group, by the name of "by"
    ),
}
_CONDITION = {"type": "object", "additionalProperties": False, "properties": _KEYS}
_RULE = documents.table_schema(
    {
        "name": {"type": "string"},
        "text": {"type": "string"},
        "when": {"type": "array", "minItems": 1, "items": _CONDITION},
    },
    {"unless": {"type": "array", "items": {"type": "string"}}},
)
SCHEMA = documents.table_schema({"cause": {"type": "array", "items": _RULE}})


@dataclass(frozen=True)
class Rule:
    """A cause: its *name*, the *text* that explains it, and the conditions that must all hold.

    A cause is not named if one of the causes in *unless* is, which explain the same.
    """

    name: str
    text: str
    when: tuple[Mapping[str, Any], ...]
    unless: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Place:
    """Where a finding was measured: NUMA nodes, bank, their relation, and the size in bytes.

    *metric* and *case* are the finding's. *left* is the share of the expected value (1: all of it, below: worse),
    *bad* whether it is worse beyond chance, *fails* whether its verdict is fail.
    """

    nodes: Sequence[int]
    bank: Any
    size: int
    left: float | None
    bad: bool
    fails: bool
    metric: str
    case: Mapping[str, Any]

    @property
    def relation(self) -> str:
        if len(self.nodes) != 1 or self.bank is None:
            return "?"
        return "local" if self.nodes[0] == self.bank else "remote"

    def key(self, by: str) -> str:
        """Return the group of the place: its bank, its NUMA node, the pair of both, or what its PUs share."""
        if by == "shared":
            return f"{self.case.get('shared', '')}{self.case.get('cache_level', '')}"
        if self.relation == "?":
            return ""
        if by == "pair":  # a link has two directions
            return " and ".join(map(str, sorted({self.nodes[0], self.bank})))
        return str(self.bank if by == "bank" else self.nodes[0])

    def is_in(self, keys: Collection[str], by: str) -> bool:
        """Return whether the place belongs to one of the groups *keys*, or whether that is unknown."""
        if by == "bank":
            return self.bank is None or not {str(b) for b in _listed(self.bank)}.isdisjoint(keys)
        if by == "pu_node":
            return not self.nodes or not {str(n) for n in self.nodes}.isdisjoint(keys)
        return self.key(by) in {"", *keys}


@dataclass(frozen=True)
class Signs:
    """The input of the rules: findings, the host's counts and settings by metric, and its system's facts.

    *missing* are check and parameters of the cases that other hosts were judged by and that this host lacks.
    """

    findings: Sequence[Finding]
    values: Mapping[str, float]
    facts: Facts | None
    missing: Sequence[tuple[str, Mapping[str, Any]]] = ()

    @functools.cached_property
    def places(self) -> Mapping[str, Sequence[_Place]]:
        """The places of the findings with values, by check."""
        places: dict[str, list[_Place]] = {}
        for f in self.findings:
            if f.values:
                nodes, bank, size = f.case.get("pu_nodes", ()), f.case.get("bank"), f.case.get("size_bytes", 0)
                bad, fails = f.verdict in {"suspect", "fail"}, f.verdict == "fail"
                place = _Place(nodes, bank, size, _left(f), bad, fails, f.metric, f.case)
                places.setdefault(f.check, []).append(place)
        return places


@functools.cache
def rules() -> tuple[Rule, ...]:
    """Return the rules of causes.toml, in their order; those of a site's file come last."""
    return tuple(itertools.chain.from_iterable(documents.tables("causes.toml", parse)))


def parse(text: str, file: str) -> list[Rule]:
    """Return the rules of a TOML text; raises BadInput naming *file*, line and fault."""
    document = documents.parse_toml(text, file)
    document.check(SCHEMA)
    for number, entry in enumerate(document.data["cause"]):
        fields: set[str] = set()
        for position, condition in enumerate(entry["when"]):
            fields |= _fields(document, condition, "cause", number, "when", position)
        _check_text(document, entry["text"], fields, "cause", number, "text")
    document.refuse_problems()
    return [
        Rule(entry["name"], entry["text"], tuple(entry["when"]), tuple(entry.get("unless", ())))
        for entry in document.data["cause"]
    ]


def _fields(document: documents.Document, condition: Mapping[str, Any], *where: str | int) -> set[str]:
    """Return the fields that a condition gives to the text of its cause; notes a problem if it is of no kind."""
    if (name := next((key for key in _KINDS if key in condition), "")) == "":
        document.problem(f"a condition needs one of the keys {', '.join(_KINDS)}", *where)
        return set()
    kind = _KINDS[name]
    for key in kind.needed:
        if key not in condition:
            document.problem(f"a condition with the key '{name}' needs the key '{key}'", *where)
    for key in condition.keys() - {*kind.needed, *kind.optional}:
        document.problem(f"a condition with the key '{name}' has no key '{key}'", *where, key)
    return {*kind.fields, *((condition["by"],) if name == "check" and "by" in condition else ())}


def _check_text(document: documents.Document, text: str, fields: Collection[str], *where: str | int) -> None:
    """Note a problem if *text* has other placeholders than the *fields* that its conditions give."""
    try:
        names = [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]
        if unknown := [name for name in names if name not in fields]:
            fields_text = ", ".join(f"{{{name}}}" for name in sorted(fields)) or "none"
            document.problem(f"unknown placeholder {{{unknown[0]}}}: its conditions give {fields_text}", *where)
            return
        text.format(**dict.fromkeys(fields, ""))
    except ValueError as error:
        document.problem(f"not a text with placeholders: {error}", *where)


def causes(signs: Signs) -> list[str]:
    """Return the causes whose signature *signs* show, each as ``name: evidence``, the likeliest first."""
    texts: dict[str, str] = {}
    for rule in rules():
        if texts.keys() & set(rule.unless):
            continue
        fields: dict[str, Any] = {}
        for condition in rule.when:
            values = _holds(condition, signs)
            if values is None:
                break
            fields = {**values, **fields}
        else:
            texts.setdefault(rule.name, f"{rule.name}: {rule.text.format(**fields)}")
    return list(texts.values())


def _holds(condition: Mapping[str, Any], signs: Signs) -> dict[str, Any] | None:
    """Return the fields that a condition gives to the text of its rule, None if it does not hold."""
    if "count" in condition:
        return _count(condition["count"], condition["is"], signs)
    if "slow" in condition:
        slow = any(f.verdict == "fail" and f.unit != "1" for f in signs.findings)
        return {} if slow == condition["slow"] else None
    if "missing" in condition:
        where = condition.get("where", {}).items()
        lacks = any(
            check == condition["missing"] and all(case.get(name) == value for name, value in where)
            for check, case in signs.missing
        )
        return {} if lacks else None
    if "setting" in condition:
        value = signs.values.get(condition["setting"])
        low, high = condition.get("at_least", float("-inf")), condition.get("below", float("inf"))
        return {"setting": f"{value:.3g}"} if value is not None and low <= value < high else None
    return _groups(condition, signs)


def _count(metric: str, relation: str, signs: Signs) -> dict[str, Any] | None:
    """Return the fields of a condition on the host's number of NUMA nodes or PUs."""
    count = signs.values.get(metric)
    if count is None or signs.facts is None:
        return None
    expected, threads = int(getattr(signs.facts, metric)), signs.facts.threads_per_core
    holds = {
        "fewer": count < expected,
        "more": count > expected,
        "one": count == 1 < expected,
        "halved": threads > 1 and count * threads == expected,
    }[relation]
    return {"found": int(count), "expected": expected, "which": _lost_nodes(int(count), signs)} if holds else None


def _lost_nodes(count: int, signs: Signs) -> str:
    """Return which NUMA nodes are missing, if the metrics of the other ones show it."""
    seen = {n for places in signs.places.values() for p in places for n in p.nodes}
    lost = sorted(set(signs.facts.numa_node_numbers if signs.facts else ()) - seen)
    if len(seen) != count or not lost:
        return ""
    numbers = ", ".join(map(str, lost))
    return f"NUMA node {numbers} is missing: " if len(lost) == 1 else f"NUMA nodes {numbers} are missing: "


def _groups(condition: Mapping[str, Any], signs: Signs) -> dict[str, Any] | None:
    """Return the fields of a condition on the shares of groups of metrics."""
    relation, size, by = condition.get("relation"), condition.get("size"), condition["by"]
    metric, where = condition.get("metric"), condition.get("where", {})
    grouped: dict[str, list[_Place]] = {}
    for place in signs.places.get(condition["check"], ()):
        if (
            relation in {None, place.relation}
            and metric in {None, place.metric}
            and all(place.case.get(name) == value for name, value in where.items())
            and (size != "cache" or 0 < place.size <= _CACHE)
            and (size != "memory" or place.size >= _MEMORY)
            and place.left is not None
            and (key := place.key(by))
        ):
            grouped.setdefault(key, []).append(place)
    low, high = condition["share"]
    shares = {key: [p.left for p in places if p.left is not None] for key, places in grouped.items()}
    medians = {key: statistics.median(values) for key, values in shares.items()}
    meant = {
        key: median
        for key, median in medians.items()
        if low <= median < high
        # A slow group must be judged slow: the median of a few noisy repetitions shows no cause.
        and (high > 1 or _is_slow(grouped[key], throughout="every" in condition))
        and (not condition.get("channels") or _lacks_channel(median, key, signs.facts))
        and max(shares[key]) - min(shares[key]) <= condition.get("alike", float("inf"))
    }
    if condition["groups"] == "all":
        holds = bool(meant) and len(meant) == len(grouped)
    elif condition["groups"] == "any":
        holds = bool(meant)
    else:
        few = len(meant) == 1 if condition["groups"] == "one" else bool(meant)
        healthy = all(median >= _HEALTHY for key, median in medians.items() if key not in meant)
        holds = few and len(meant) < len(grouped) and healthy
    if not holds or ("only" in condition and not _only(meant, by, signs)):
        return None
    key = min(meant, key=lambda k: meant[k])
    return {by: key, "share": f"{meant[key]:.0%}"}


def _is_slow(places: Sequence[_Place], *, throughout: bool) -> bool:
    """Return whether a metric of a group fails, and half of them (*throughout*: all) are bad."""
    bad = sum(place.bad for place in places)
    return any(place.fails for place in places) and (bad == len(places) if throughout else 2 * bad >= len(places))


def _only(keys: Collection[str], by: str, signs: Signs) -> bool:
    """Return whether nothing fails outside of the groups *keys*."""
    places = itertools.chain.from_iterable(signs.places.values())
    return all(place.is_in(keys, by) for place in places if place.fails)


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else (value,)


def _lacks_channel(share: float, bank: str, facts: Facts | None) -> bool:
    """Return whether *share* of the bandwidth of *bank* is that with one or two memory channels fewer."""
    if facts is None or not facts.channels_per_package:
        return any(abs(share - (c - 1) / c) <= min(_NEAR, _NEAR_UNKNOWN / c) for c in _USUAL_CHANNELS)
    packages = dict(zip(map(str, facts.numa_node_numbers), facts.package_of_numa_node, strict=True))
    package = packages.get(bank)
    nodes = sum(p == package for p in packages.values()) if package is not None else 1
    channels = max(1, facts.channels_per_package // nodes)
    near = min(_NEAR, 1 / (4 * channels))
    return any(abs(share - (channels - lost) / channels) <= near for lost in (1, 2) if lost < channels)


def _left(finding: Finding) -> float | None:
    """Return the share of the expected value that a metric reaches (1: all of it, below: worse)."""
    if finding.reference is None or not finding.reference.value:
        return None
    share = statistics.median(finding.values) / finding.reference.value
    return share if finding.better != "lower" else 1 / share if share else None
