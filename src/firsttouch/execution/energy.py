# SPDX-License-Identifier: Apache-2.0
"""The energy that a host used meanwhile, from counters that count it; nothing is estimated.

In this order: the command of ``FIRSTTOUCH_ENERGY``, which prints the joules so far (``slurm``: those of this job's
step, from sstat); the powercap files of the kernel (RAPL; Documentation/power/powercap/powercap.rst); Cray's
``pm_counters``. They count the whole host, whoever uses it.
"""

from __future__ import annotations

import csv
import functools
import io
import os
import re
import reprlib
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from firsttouch.clock import SYSTEM_CLOCK, Clock
from firsttouch.errors import BadInput, FirstTouchError, RunFailed
from firsttouch.execution.placement_check import Observed
from firsttouch.execution.progress import say
from firsttouch.execution.sampling import Watching
from firsttouch.host import kernel_files
from firsttouch.host.grant import number_of_job
from firsttouch.tools import run_tool

if TYPE_CHECKING:
    from firsttouch.records.schema import Record

#: The columns of a run's table.
_COLUMNS = ("joules", "idle_watts", "joules_above_idle", "joules_per_million_reads")
#: What replaces the kernel's counters: ``slurm``, ``none``, or a command that prints joules.
VARIABLE = "FIRSTTOUCH_ENERGY"
#: The metric of its records.
METRIC = "energy"
#: How the names of the zones begin whose sum is the host's: packages, and their memory, which they do not count.
_WHOLE = ("package", "dram")
#: A counter that would stand for more than this power (W) was set back, and did not wrap around.
_MOST_WATTS = 5000.0
#: Seconds between two readings, which cost the host a little.
_INTERVAL = 5.0
#: The longest time (s) that a site's command may take.
_SECONDS = 5.0
_ZONE = r"intel-rapl:\d+(:\d+)?"


class Counter(NamedTuple):
    """A counter of joules: its *name*, what reads it (None: unreadable), and where it wraps around (0: never)."""

    name: str
    read: Callable[[], float | None]
    range: float = 0.0


class Energy(NamedTuple):
    """The *joules* of each part of the host in *seconds*, by *source*; or why they are *unknown*.

    *idle_watts* is the power of the same parts just before, while the program did not run; None: not measured.
    """

    source: str = ""
    seconds: float = 0.0
    parts: Mapping[str, float] = MappingProxyType({})
    unknown: str = ""
    idle_watts: float | None = None

    @property
    def joules(self) -> float | None:
        """The sum of all parts, None if it is unknown."""
        return None if self.unknown else sum(self.parts.values())

    def to_dict(self, reads: int = 0) -> dict[str, Any]:
        """Return the JSON form; *reads* is how many reads were aligned meanwhile, if any."""
        joules = self.joules
        if joules is None:
            return {"joules": None, "unknown": self.unknown}
        document = {"joules": joules, "source": self.source, "seconds": self.seconds, "parts": dict(self.parts)}
        if self.idle_watts is not None:
            document |= {
                "idle_watts": self.idle_watts,
                "joules_above_idle": joules - self.idle_watts * self.seconds,
            }
        return document | ({"joules_per_million_reads": joules / reads * 1e6} if reads else {})


def in_words(energy: Mapping[str, Any]) -> str:
    """Return what :meth:`Energy.to_dict` returned as a part of a sentence: ``245 J (76.1 W, idle 40.2 W), ``."""
    if (joules := energy["joules"]) is None:
        return ""
    idle = f", idle {energy['idle_watts']:.1f} W" if "idle_watts" in energy else ""
    return f"{joules:.4g} J ({joules / energy['seconds']:.1f} W{idle}), "


def table(sample: str, scenario: str, run: Mapping[str, Any]) -> str:
    """Return a run of a *sample* as a table of one row with its head (TSV), in which NA stands for no value.

    *run* is the JSON document of `firsttouch run`. Every run has the same head, which shares no column
    with Snakemake's benchmark files.
    """
    row = {"sample": sample, "scenario": scenario, "placement": run["placement"], "seconds": run["seconds"]}
    row |= {column: run["energy"].get(column) for column in _COLUMNS}
    text = io.StringIO()
    rows = csv.writer(text, "excel-tab", lineterminator="\n")
    rows.writerow(row)
    values = (round(value, 3) if isinstance(value, float) else value for value in row.values())
    rows.writerow("NA" if value is None else value for value in values)
    return text.getvalue()


def records(record: Record, energies: Sequence[Mapping[str, Any]]) -> list[Record]:
    """Return the record of the energies of the runs of *record*; none if one is unknown.

    *energies* are as :meth:`Energy.to_dict` returns them.
    """
    if any(energy["joules"] is None for energy in energies):
        return []
    samples = tuple(energy["joules"] for energy in energies)
    parameters = {**record.parameters, "energy_source": energies[0]["source"]}
    # What identifies no case stands beside what the kernel showed.
    first, *others = record.placement_found or [{}]
    seen = [{**first, "energy": [dict(energy) for energy in energies]}, *others]
    changed: dict[str, Any] = {"samples": samples, "parameters": parameters, "placement_found": seen}
    return [replace(record, metric=METRIC, unit="J", better="lower", **changed)]


class Meter:
    """Sums what the counters of a host count from :meth:`begin` on.

    It must be read often enough to see each time that a counter wraps around: :meth:`watching` reads it beside the
    samples of a program. *root* has the host's sys/; *lacking* says why it has no counters. Raises BadInput if
    FIRSTTOUCH_ENERGY has no usable command.
    """

    def __init__(self, root: Path = Path("/"), clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self.source, self._counters, self.lacking = _counters(root)
        self.idle_watts: float | None = None
        self.energy = Energy(unknown="it is not measured yet")
        self._unknown = self.lacking
        self._parts: dict[str, float] = {}
        self._last: dict[str, float] = {}
        self._began = self._read_at = clock.monotonic()

    def begin(self, idle: float | None = None) -> None:
        """Begin to count, after measuring the power for *idle* seconds, in which the program does not run yet."""
        if idle and self._counters:
            self._start()
            self._clock.sleep(idle)
            before = self.end()
            self.idle_watts = None if before.joules is None else before.joules / before.seconds
        self._start()

    def _start(self) -> None:
        self._unknown = self.lacking
        self._parts, self._last = {}, {}
        self._began = self._read_at = self._clock.monotonic()
        for counter in self._counters:
            if (value := self._value(counter)) is not None:
                self._last[counter.name] = value
                self._parts[counter.name] = 0.0

    def watching(self, watching: Watching | None = None) -> Watching:
        """Return how programs are sampled (None: as usual), with a reading of the counters when one is due."""
        watching = watching or Watching()
        if not any(counter.range for counter in self._counters):
            return watching
        look = watching.look

        def look_and_read(pid: int, observed: Observed) -> None:
            if self._clock.monotonic() - self._read_at >= _INTERVAL:
                self._read()
            look(pid, observed)

        return watching._replace(look=look_and_read)

    def end(self) -> Energy:
        """Return the energy since the meter began; :attr:`energy` keeps it."""
        self._read()
        seconds = self._read_at - self._began
        if not self._unknown and not any(self._parts.values()):
            self._unknown = f"the counters of {self.source} did not move in {seconds:.3g} s"
        self.energy = (
            Energy(unknown=self._unknown)
            if self._unknown
            else Energy(self.source, seconds, dict(self._parts), idle_watts=self.idle_watts)
        )
        return self.energy

    def _read(self) -> None:
        """Add what the counters have counted since the last reading."""
        now = self._clock.monotonic()
        elapsed, self._read_at = now - self._read_at, now
        for counter in self._counters:
            value = self._value(counter)
            if value is None or counter.name not in self._last:
                continue
            used = value - self._last[counter.name]
            if used < 0:
                used += counter.range
            if used < 0 or used > _MOST_WATTS * max(elapsed, 1.0):
                self._unknown = self._unknown or f"the counter of {counter.name} was set back"
            self._parts[counter.name] += used
            self._last[counter.name] = value

    def _value(self, counter: Counter) -> float | None:
        value = counter.read()
        if value is None:
            self._unknown = self._unknown or f"the counter of {counter.name} became unreadable"
        return value


def _counters(root: Path) -> tuple[str, Sequence[Counter], str]:
    """Return the source of the counters, the counters, and why there are none."""
    command = os.environ.get(VARIABLE, "")
    if command == "none":
        return "", (), f"{VARIABLE}=none"
    if command:
        try:
            words = _of_slurm() if command == "slurm" else shlex.split(command)
        except ValueError as error:
            raise BadInput(f"{VARIABLE} is '{command}': {error}") from error
        if not words:
            raise BadInput(f"{VARIABLE} is '{command}': a command that prints joules, slurm, or none")
        lacking = _why_no_number(tuple(words))
        return Path(words[0]).name, () if lacking else (Counter("host", lambda: _printed(words)),), lacking
    zones = list(_zones(root))
    readable = [zone for zone in zones if zone.read() is not None]
    if len(readable) < len(zones):
        files = "energy_uj in /sys/class/powercap"
        remedy = f"an administrator may allow it (chmod a+r), or set {VARIABLE}"
        return "", (), f"this user cannot read {files}: {remedy}"
    if zones:
        return "powercap", zones, ""
    cray = root / "sys/cray/pm_counters/energy"
    if cray.exists():
        return "pm_counters", (Counter("host", lambda: _first_number(kernel_files.text(cray))),), ""
    return "", (), f"this host has no counters of energy (powercap), and {VARIABLE} names no command"


def _zones(root: Path) -> Iterator[Counter]:
    """Yield the zones of powercap that together are the host's packages and memory.

    The zones core and uncore are parts of their package, psys contains packages, and intel-rapl-mmio counts a
    package a second time.
    """
    folder = root / "sys/class/powercap"
    for zone in sorted(folder.glob("intel-rapl:*")) if folder.is_dir() else ():
        name = kernel_files.text(zone / "name")
        if not re.fullmatch(_ZONE, zone.name) or not name.startswith(_WHOLE):
            continue
        parent = kernel_files.text(zone.with_name(zone.name.rpartition(":")[0]) / "name")
        label = f"{name} of {parent}" if parent else name
        range_uj = kernel_files.number(zone / "max_energy_range_uj")
        file = zone / "energy_uj"

        def read(file: Path = file) -> float | None:
            count = kernel_files.number(file)
            return None if count is None else count / 1e6

        yield Counter(label, read, (range_uj or 0.0) / 1e6)


def _of_slurm() -> list[str]:
    """Return the command that prints the joules of this job's step so far."""
    if not (job := number_of_job("SLURM_JOB_ID")):
        raise BadInput(f"{VARIABLE}=slurm: this is no job of Slurm")
    step = os.environ.get("SLURM_STEP_ID", "batch")
    return ["sstat", "--noheader", "--parsable2", "--format=ConsumedEnergyRaw", f"--jobs={job}.{step}"]


@functools.cache
def _why_no_number(words: tuple[str, ...]) -> str:
    """Return why a command prints no joules, and say so once; an empty text if it prints them."""
    try:
        _asked(words)
    except FirstTouchError as error:
        why = f"{VARIABLE}: {error}"
        say(f"firsttouch: warning: {why}")
        return why
    return ""


def _printed(words: Sequence[str]) -> float | None:
    """Return the first number that a command prints, None if it fails or prints none."""
    try:
        return _asked(words)
    except FirstTouchError:
        return None


def _asked(words: Sequence[str]) -> float:
    """Return the first number that a command prints; raises TimedOut, Missing or RunFailed."""
    done = run_tool(words, timeout=_SECONDS)
    if done.returncode:
        raise RunFailed(f"{shlex.join(words)} ended with status {done.returncode}")
    number = _first_number(done.stdout)
    if number is None:
        raise RunFailed(f"{shlex.join(words)} printed no number, but {reprlib.repr(done.stdout.strip())}")
    return number


def _first_number(text: str) -> float | None:
    match = re.match(r"\s*(\d+(?:\.\d+)?)\b", text)
    return float(match[1]) if match else None
