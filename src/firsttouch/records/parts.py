# SPDX-License-Identifier: Apache-2.0
"""The parts of hosts, and which of them each case shows.

The catalogue (metrics.toml) says for each check which part its cases show. The cases of one part and one kind
(bandwidth, latency, clock, …) form a :class:`Series`: their mean loss is judged. A loss that the cases of all
memory, or of all links, share is a series of the host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct

from firsttouch.records.cases import Case, by_key
from firsttouch.records.catalogue import checks

#: Sizes in bytes: up to the first fits every processor's first cache, from the second on no cache fits.
_CACHE, _MEMORY = 32 << 10, 32 << 20
#: The kind of a series by the unit of its cases.
_KINDS = {"GB/s": "bandwidth", "ns": "latency", "GHz": "clock", "s": "time"}
#: The parts whose places are names that causes tell apart, and not numbers.
_BY_PLACE = "transfers"
#: The words for all parts of a name together.
_ALL = {
    "memory": "all memory",
    "link": "all links",
    "clock": "all clocks",
    "cache": "all caches",
    "banks": "several banks",
}


class Part(Struct, frozen=True, order=True):
    """A part of a host that can break or differ as one: its *name* (memory, link, …) and its *place*.

    The place of all parts of a name together is empty.
    """

    name: str
    place: tuple[str, ...] = ()

    @property
    def text(self) -> str:  # noqa: PLR0911 - a list of names
        """The part in words: ``memory of NUMA node 0``."""
        if not self.place:
            return _ALL.get(self.name, self.name)
        if self.place == ("host",):
            return "memory" if self.name == "banks" else self.name
        if self.name == "memory":
            return f"memory of bank {self.place[0]}"
        if self.name == "link":
            return f"link from NUMA {self.place[0]} to bank {self.place[1]}"
        if self.name == "banks":
            return f"memory of several banks from NUMA {self.place[0]}"
        if self.name in {"clock", "cache"}:
            return f"{self.name}{'s' * (self.name == 'cache')} of NUMA {self.place[0]}"
        return " ".join((self.name, *self.place))


class Series(Struct, frozen=True):
    """The *cases* (numbers) of one *kind* that show one *part*, or all parts of a name *together*."""

    part: Part
    kind: str
    cases: Sequence[int]
    is_together: bool = False

    @property
    def title(self) -> str:
        """The series in words: ``memory of bank 0, bandwidth``."""
        return f"{self.part.text}, {self.kind}"

    @property
    def pattern(self) -> str:
        """The series as causes name it: ``memory bandwidth``, ``transfers host clock``."""
        if self.part.name != _BY_PLACE:
            return f"{self.part.name} {self.kind}"
        return f"{self.part.name} {self.part.place[0] if self.part.place else ''} {self.kind}"


def series(cases: Mapping[int, Case]) -> list[Series]:
    """Return the series of some cases by their number: series of single parts, and of all parts of a name."""
    keys = {number: (part_of(case), kind_of(case)) for number, case in cases.items()}
    single = [Series(*key, tuple(numbers)) for key, numbers in by_key(keys, lambda n: keys[n]).items()]
    together = {number: (Part(part.name), kind) for number, (part, kind) in keys.items() if part.place}
    several = Counter((s.part.name, s.kind) for s in single)
    return single + [
        Series(part, kind, tuple(numbers), is_together=True)
        for (part, kind), numbers in by_key(together, lambda n: together[n]).items()
        if several[part.name, kind] > 1
    ]


def kind_of(case: Case) -> str:  # noqa: PLR0911 - a list of rules
    """Return the class of metrics of a case."""
    check = checks().get(case.check)
    if check is not None and check.kind == "aligner":
        return "time"
    if case.check == "tails":
        return "slowest accesses"
    if case.metric == "saturation_bandwidth":
        return "saturation"  # queues as well as channels
    if "sequential" in case.metric:
        return "sequential latency"  # prefetchers as well as modules
    if check is not None and check.follows_clock:
        return "clock"
    if "cache" in _relation(case):
        return "latency"
    return _KINDS.get(case.unit, case.metric.replace("_", " "))


def part_of(case: Case) -> Part:
    """Return the part that a case shows."""
    check, parameters = checks().get(case.check), case.parameters
    if check is None or not check.shows:
        # A check without a role shows the part that it was measured on.
        nodes = _listed(parameters.get("pu_nodes", ()))
        return Part(case.check.replace("_", " "), nodes)
    name, *roles = check.shows.get(_relation(case), check.shows.get("any", case.check)).split()
    place = []
    for role in roles:
        values = _listed(parameters.get(role.strip("{}"), ()))
        if not values:
            place = ["host"]
            break
        place.append(",".join(values))
    return Part(name, tuple(place))


def _relation(case: Case) -> str:
    """Return which of the roles of its check a case has: core, cache, local, remote or any."""
    parameters = case.parameters
    size, unit = parameters.get("size_bytes"), case.unit
    if unit == "ns" and isinstance(size, (int, float)) and 0 < size < _MEMORY:
        return "core" if size <= _CACHE else "cache"
    nodes, banks = _listed(parameters.get("pu_nodes", ())), _listed(parameters.get("bank", ()))
    load = parameters.get("load")
    if load not in {None, "none", "local"}:
        return "loaded"
    if len(nodes) == 1 and len(banks) == 1:
        return "local" if nodes == banks else "remote"
    return "any"


def _listed(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, (list, tuple)) else (str(value),)
