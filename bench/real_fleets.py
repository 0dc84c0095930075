# SPDX-License-Identifier: Apache-2.0
"""Verdicts on measured fleets with known faults, judged after each day as a site would judge them.

Method. No data set is shipped: each is given by its folder. Its measurements become records, and the records up to
the end of each day with measurements are judged without references. The command line is run once for each data
set: store append and report. The words of its report must equal the last day's.

A faulty host is *found* if it fails on a day of its fault, *named* if it is suspect but never fails, and
*missed* otherwise. Any other host that fails is *blamed*; `days` counts the pairs of such a host and a day.
From the day of a repair on, the host is a good one, which is given SETTLED sessions to pass. Sessions are
counted per host, as the judge does: a gap of over an hour begins one.

Forms of a data set, told apart by what lies in its folder:

*.hw_        cardiff (redhat-cip/hardware): a Python literal per host. Hosts with fewer memory modules than most
             have are faulty. A PU's rate at 1 GB and 2 GB (at 128 MB, if a host lacks these) are two
             repetitions; a case is the median of the PUs of a package. It also has the rates of all PUs
             together (16 and 128 MB per process), and one each in two caches (1 MB, 4 kB). PUs 0 to 7 and 16 to
             23 belong to package 0. The modules are in the configuration's record.
dgemm_*.csv  dahu (T. Cornebize's thesis): DGEMM rate per processor, as a site's check. Nodes 13 to 16 are
             faulty in dgemm_calibration_slownodes.csv and good in dgemm_calibration.csv.
records.csv  any other: columns host, time (ISO 8601), check, metric, value, unit and better, and optionally any
             parameters of the case (pu_nodes: 0 or 0+1; bank). truth.csv has the columns host, begin and end of
             each fault, either of which may be empty.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import csv
import datetime
import io
import json
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from firsttouch.cli import main as firsttouch
from firsttouch.errors import BadInput
from firsttouch.host.memory_modules import Module
from firsttouch.judge.judging import judged
from firsttouch.judge.verdict import ORDER
from firsttouch.records import samples_table, schema
from firsttouch.records.drift import latest
from firsttouch.records.schema import Record
from firsttouch.records.tables import split
from firsttouch.systems.definition import Undescribed

EXAMPLES = """\
examples:
  python bench/real_fleets.py fleets/dahu fleets/cardiff
  python bench/real_fleets.py fleets/dahu --scenario 'good, then bad' -v
  python bench/real_fleets.py fleets/mine --json"""
#: A faulty host should fail, and a repaired one pass, within this number of sessions.
SETTLED = 3
#: Hosts of dahu that are faulty in its first file.
DAHU_FAULTY = ("dahu-13", "dahu-14", "dahu-15", "dahu-16")
HOUR, DAY = 3600.0, 86400.0
REPETITIONS = (1, 3, 6, 12)
_NEEDED = ("host", "time", "check", "metric", "value", "unit", "better")


@dataclass(frozen=True)
class Fault:
    """A fault of a *host* from *begin* to before *end* (seconds since 1970)."""

    host: str
    begin: float = float("-inf")
    end: float = float("inf")


@dataclass(frozen=True)
class Measurement:
    """A value of a metric of a host at a *time* (seconds since 1970)."""

    host: str
    time: float
    value: float
    check: str
    metric: str
    unit: str
    better: Any = "higher"
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def record(self, system: str) -> Record:
        """Return its record."""
        what = (self.check, self.metric, self.unit, self.better, (self.value,))
        return Record(*what, parameters=self.parameters, host=self.host, system=system, time=iso(self.time))


@dataclass(frozen=True)
class Scenario:
    """Measurements of a fleet with its *faults*."""

    name: str
    measurements: Sequence[Measurement]
    faults: Sequence[Fault]


@dataclass
class Outcome:
    """The verdicts of all days on a scenario.

    *until* has the sessions and days of each faulty host from its fault to its first fail. *words* are those of
    the last day of the fault, *settled* the sessions of a repaired host until it passes for good (None: it
    does not). *blamed* counts the days on which a good host fails, *last* all words of the last day.
    """

    hosts: int = 0
    faulty: list[str] = field(default_factory=list)
    until: dict[str, tuple[int, float]] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    causes: dict[str, list[str]] = field(default_factory=dict)
    settled: dict[str, int | None] = field(default_factory=dict)
    blamed: Counter[str] = field(default_factory=Counter)
    suspected: Counter[str] = field(default_factory=Counter)
    evidence: dict[str, str] = field(default_factory=dict)
    against_good: dict[str, str] = field(default_factory=dict)
    good_days: int = 0
    days: int = 0
    last: dict[str, str] = field(default_factory=dict)

    @property
    def named(self) -> list[str]:
        """The faulty hosts that never fail, but are suspect at the end of their fault."""
        return [host for host in self.faulty if host not in self.until and self.words.get(host) == "suspect"]

    def text(self) -> str:
        """Return one line."""
        missed = [host for host in self.faulty if host not in self.until and host not in self.named]
        parts = [
            f"found {len(self.until)} of {len(self.faulty)}",
            f"within {SETTLED} sessions {sum(count <= SETTLED for count, _ in self.until.values())}",
            f"failing at the end of the fault {sum(word == 'fail' for word in self.words.values())}",
            f"named {len(self.named)}",
            f"missed {len(missed)}",
            f"blamed {len(self.blamed)} of {self.hosts} hosts, "
            f"{sum(self.blamed.values())} of {self.good_days} days",
        ]
        if self.until:
            sessions, days = zip(*self.until.values(), strict=True)
            parts.append(f"until found at most {max(sessions)} sessions, {max(days):.1f} days")
        if self.settled:
            late = [host for host, count in self.settled.items() if count is None or count > SETTLED]
            parts.append(f"not settled {SETTLED} sessions after the repair: {len(late)} of {len(self.settled)}")
        return "; ".join(parts)

    def details(self) -> Iterator[str]:
        """Yield lines about each host of interest."""
        for host in self.faulty:
            until = self.until.get(host)
            when = f"fails after {until[0]} sessions, {until[1]:.1f} days" if until else "never fails"
            causes = "; ".join(self.causes.get(host, ())) or "no cause"
            yield f"{host}: {self.words.get(host, 'not measured')}, {when}; {causes}"
            if host in self.evidence:
                yield f"    {self.evidence[host]}"
        for host, sessions in self.settled.items():
            yield f"{host}: " + (f"passes after {sessions} sessions" if sessions else "does not pass to the end")
        for host, days in self.blamed.items():
            yield f"{host}: good, fails on {days} days: {self.against_good[host]}"
        for host, days in self.suspected.items():
            yield f"{host}: good, suspect on {days} days"
        yield "last day: " + ", ".join(f"{count} {word}" for word, count in Counter(self.last.values()).items())


def iso(time: float) -> str:
    """Return seconds since 1970 as a record's time."""
    return datetime.datetime.fromtimestamp(time, datetime.UTC).isoformat(timespec="milliseconds")


def seconds(text: str) -> float:
    """Return the seconds since 1970 of an ISO date; raises ValueError for any other text."""
    time = datetime.datetime.fromisoformat(text)
    return (time if time.tzinfo else time.replace(tzinfo=datetime.UTC)).timestamp()


# ----------------------------------------------------------------------
# The forms of data sets


def cardiff(folder: Path) -> Iterator[Scenario]:
    """Yield the scenario of a folder with a Python literal per host."""
    modules: Counter[str] = Counter()
    measurements: list[Measurement] = []
    begin = seconds("2014-01-01")
    for file in sorted(folder.glob("*.hw_")):
        items = ast.literal_eval(file.read_text(encoding="utf-8"))
        values = {(kind, item, name): str(value) for kind, item, name, value in items}
        host = values["system", "product", "serial"]
        slots = {
            " ".join(v.split()): (k, i) for (k, i, name), v in values.items() if (k, name) == ("memory", "slot")
        }
        filled = {slot: place for slot, place in slots.items() if (*place, "size") in values}
        modules[host] = len(filled)
        settings = {"cpu.model": values.get(("cpu", "physical_0", "product"), "")}
        for slot, place in filled.items():
            kind = values[*place, "description"].split()[1]
            rate, size = float(values[*place, "clock"]), int(values[*place, "size"])
            settings[f"memory.modules.{slot}"] = Module(slot, "", rate, 64, size, kind, rate).text()
        stored = {"settings": settings, "provenance": {"memory.modules": "dmidecode"}}
        about = ("configuration", "settings", "1", "neither", stored)
        measurements.append(Measurement(host, begin, float(len(filled)), *about))
        for number in range(2):
            time = begin + 60 * (number + 1)
            for package in range(2):
                place = {"pu_nodes": [package], "bank": package, "relation": "local", "threads": 1}
                pus = [pu for pu in range(32) if pu // 8 % 2 == package]
                for check, metric, size, kernel in (
                    ("bandwidth", "copy_bandwidth", ("1G", "2G")[number], {"kernel": "copy"}),
                    ("cache", "read_rate", ("1M", "4K")[number], {"size_bytes": (1 << 20, 1 << 12)[number]}),
                ):
                    rates = [
                        values.get(("cpu", f"logical_{pu}", f"bandwidth_{size}"))
                        or values["cpu", f"logical_{pu}", "bandwidth_128M"]
                        for pu in pus
                    ]
                    rate = statistics.median(map(float, rates)) / 1000
                    what = (check, metric, "GB/s", "higher", {**place, **kernel})
                    measurements.append(Measurement(host, time, rate, *what))
            rate = float(values["cpu", "logical", f"forked_bandwidth_{('16M', '128M')[number]}"]) / 1000
            together = {"pu_nodes": [0, 1], "threads": 32}
            what = ("contention", "total_bandwidth", "GB/s", "higher", together)
            measurements.append(Measurement(host, time, rate, *what))
    usual = statistics.mode(modules.values())
    faults = [Fault(host) for host, count in modules.items() if count < usual]
    yield Scenario("one repetition", [m for m in measurements if m.time < begin + 120], faults)
    yield Scenario("two repetitions", measurements, faults)


def dgemm(file: Path) -> list[Measurement]:
    """Return the measurements of a file of dahu."""
    with file.open(encoding="utf-8") as lines:
        return [
            Measurement(
                f"{row['cluster']}-{row['node']}",
                float(row["start_time"]),
                float(row["avg_gflops"]),
                *("dgemm", "gflops", "GFLOP/s", "higher"),
                {"pu_nodes": [int(row["cpu"])]},
            )
            for row in csv.DictReader(lines)
        ]


def moved(measurements: Sequence[Measurement], by: float) -> list[Measurement]:
    """Return the measurements *by* seconds later."""
    return [replace(m, time=m.time + by) for m in measurements]


def grouped(measurements: Sequence[Measurement], size: int) -> list[Measurement]:
    """Return them with *size* consecutive ones of each host and case in a session, at the time of its last.

    The repetitions of a session are a minute apart. A last session with fewer is left out.
    """
    cases: dict[tuple[str, str], list[Measurement]] = {}
    for m in sorted(measurements, key=lambda m: m.time):
        cases.setdefault((m.host, json.dumps([m.check, m.metric, m.parameters], sort_keys=True)), []).append(m)
    sessions = []
    for series in cases.values():
        for begin in range(0, len(series) - size + 1, size):
            session = series[begin : begin + size]
            sessions += [replace(m, time=session[-1].time + 60 * i) for i, m in enumerate(session)]
    return sessions


def dahu(folder: Path) -> Iterator[Scenario]:
    """Yield the scenarios of dahu's two files."""
    bad, good = dgemm(folder / "dgemm_calibration_slownodes.csv"), dgemm(folder / "dgemm_calibration.csv")
    ends = [m.time for m in bad]
    begin, end = min(ends), max(ends)
    earlier = moved(good, begin - DAY - max(m.time for m in good))
    yield Scenario("good, then bad", [*earlier, *bad], [Fault(host, begin) for host in DAHU_FAULTY])
    for size in REPETITIONS:
        yield Scenario(f"bad, {size} per session", grouped(bad, size), [Fault(host) for host in DAHU_FAULTY])
    # The files overlap by a day, which would put measurements of one host in the wrong order.
    later = moved(good, max(0.0, end + DAY - min(m.time for m in good)))
    repaired = min(m.time for m in later)
    yield Scenario("bad, then good", [*bad, *later], [Fault(host, end=repaired) for host in DAHU_FAULTY])
    yield Scenario("good, 1 per session", good, [])
    yield Scenario("good, 12 per session", grouped(good, 12), [])


def plain(folder: Path) -> Iterator[Scenario]:
    """Yield the scenario of records.csv and truth.csv."""
    measurements, faults = [], []
    file = folder / "records.csv"
    with file.open(encoding="utf-8", newline="") as lines:
        reader = csv.DictReader(lines)
        if lacking := [name for name in _NEEDED if name not in (reader.fieldnames or ())]:
            raise BadInput(f"{file}:1: it lacks the columns {', '.join(lacking)}")
        for row in reader:
            given = {k: _parameter(k, v) for k, v in row.items() if k and k not in _NEEDED and v}
            what = (row["check"], row["metric"], row["unit"], row["better"], given)
            try:
                measurements.append(Measurement(row["host"], seconds(row["time"]), float(row["value"]), *what))
            except (TypeError, ValueError) as error:
                raise BadInput(f"{file}:{reader.line_num}: {error}") from error
    file = folder / "truth.csv"
    with file.open(encoding="utf-8", newline="") as lines:
        reader = csv.DictReader(lines)
        if lacking := [name for name in ("host", "begin", "end") if name not in (reader.fieldnames or ())]:
            raise BadInput(f"{file}:1: it lacks the columns {', '.join(lacking)}")
        for row in reader:
            try:
                ends = {k: seconds(row[k]) for k in ("begin", "end") if row[k]}
            except ValueError as error:
                raise BadInput(f"{file}:{reader.line_num}: {error}") from error
            faults.append(Fault(row["host"], **ends))
    yield Scenario("as measured", measurements, faults)


def _parameter(name: str, text: str) -> Any:
    """Return the value of a parameter: a list of numbers, a number, or a text."""
    if name in {"pu_nodes", "banks", "pus"}:
        return [int(number) for number in text.split("+")]
    return int(text) if text.isdecimal() else text


def scenarios(folder: Path) -> Iterator[Scenario]:
    """Return the scenarios of a data set; raises BadInput if its form is unknown."""
    for pattern, form in (("*.hw_", cardiff), ("dgemm_*.csv", dahu), ("records.csv", plain)):
        if any(folder.glob(pattern)):
            return form(folder)
    raise BadInput(f"{folder}: it has neither *.hw_, dgemm_*.csv nor records.csv (see --help)")


# ----------------------------------------------------------------------
# The verdicts


def sessions(times: Iterable[float]) -> list[float]:
    """Return the beginnings of the sessions of a host."""
    begins: list[float] = []
    previous = float("-inf")
    for time in sorted(times):
        if time - previous > HOUR:
            begins.append(time)
        previous = time
    return begins


def run(scenario: Scenario, system: str) -> Outcome:  # noqa: PLR0912
    """Judge a scenario at the end of each day with measurements."""
    frame = schema.to_frame([m.record(system) for m in scenario.measurements])
    by_host: dict[str, list[float]] = {}
    for m in scenario.measurements:
        by_host.setdefault(m.host, []).append(m.time)
    begins = {host: sessions(times) for host, times in by_host.items()}
    ends = sorted({(m.time // DAY + 1) * DAY for m in scenario.measurements})
    faults = {fault.host: fault for fault in scenario.faults}
    outcome = Outcome(len(by_host), list(faults), days=len(ends))
    for end in ends:
        records = frame.filter(pl.col("time").dt.epoch("ms") < 1000 * end)
        verdicts = judged(
            samples_table.of_tables([split(records)], system),
            Undescribed(system),
            configurations=partial(latest, records),
        )
        outcome.last = {host: ORDER[verdicts.word(host)] for host in verdicts.hosts}
        for host, word in outcome.last.items():
            fault = faults.get(host)
            newest = max(time for time in by_host[host] if time < end)
            if fault and fault.begin <= newest < fault.end:
                outcome.words[host] = word
                if word == "fail" and host not in outcome.until:
                    since = max(fault.begin, begins[host][0])
                    count = sum(since <= time < end for time in begins[host])
                    outcome.until[host] = (count, (newest - since) / DAY)
                if word == "fail":
                    outcome.causes[host] = list(verdicts.verdict(host).causes)
                if word != "pass":
                    outcome.evidence[host] = next(iter(verdicts.verdict(host).evidence), "")
                continue
            if fault and newest >= fault.end:
                count = sum(fault.end <= time < end for time in begins[host])
                if word != "pass":
                    outcome.settled[host] = None
                elif outcome.settled.get(host) is None:
                    outcome.settled[host] = count
                if count < SETTLED:
                    continue
            outcome.good_days += 1
            if word == "fail":
                outcome.blamed[host] += 1
                outcome.against_good[host] = next(iter(verdicts.verdict(host).evidence), "")
            elif word == "suspect":
                outcome.suspected[host] += 1
    return outcome


def by_command_line(scenario: Scenario, system: str, last: Mapping[str, str]) -> str:
    """Return how the report of a store agrees with the verdicts of the *last* day."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        schema.append(place / "records.jsonl", [m.record(system) for m in scenario.measurements])
        statuses, texts = [], []
        for arguments in (
            ["store", "append", str(place / "store"), str(place / "records.jsonl")],
            ["report", str(place / "store"), "-o", str(place / "report"), "--json"],
        ):
            with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):
                statuses.append(firsttouch(arguments))
            texts.append(out.getvalue())
    hosts = [host for of_system in json.loads(texts[1])["systems"] for host in of_system["hosts"]]
    words = {host["host"]: host["verdict"] for host in hosts}
    different = sorted(host for host, word in last.items() if words.get(host) != word)
    return (
        f"store and report end with {', '.join(map(str, statuses))}; "
        f"the report has {len(words)} hosts, other words for {len(different)}"
        + (f": {', '.join(different)}" if different else "")
    )


def main() -> int:
    """Print a line per scenario, or a JSON document."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="*", type=Path, metavar="FOLDER", help="a data set")
    parser.add_argument("--scenario", metavar="NAME", help="only scenarios whose names have this text")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("-v", "--verbose", action="store_true", help="also a line per host of interest")
    args = parser.parse_args()
    if not args.data:
        print("no data set was given, and none is shipped: python bench/real_fleets.py FOLDER (see --help)")
        return 0
    document: dict[str, dict[str, Any]] = {}
    try:
        for folder in args.data:
            name, chosen = folder.resolve().name, None
            for scenario in scenarios(folder):
                if args.scenario and args.scenario not in scenario.name:
                    continue
                outcome = run(scenario, name)
                chosen = (scenario, outcome)
                document.setdefault(name, {})[scenario.name] = {**asdict(outcome), "named": outcome.named}
                if not args.json:
                    print(f"{name}, {scenario.name}: {outcome.text()}", flush=True)
                    if args.verbose:
                        print(*(f"    {line}" for line in outcome.details()), sep="\n", flush=True)
            if chosen:
                commands = by_command_line(chosen[0], name, chosen[1].last)
                document[name]["command line"] = commands
                if not args.json:
                    print(f"{name}, command line ({chosen[0].name}): {commands}", flush=True)
    except BadInput as error:
        print(f"real_fleets: {error}", file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps(document, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
