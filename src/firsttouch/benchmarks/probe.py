# SPDX-License-Identifier: Apache-2.0
"""Runs the native probe, firsttouch-probe, and converts its JSON lines into records."""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from firsttouch.benchmarks import drawn_order
from firsttouch.errors import BadInput, CannotHere, FirstTouchError, RunFailed
from firsttouch.execution.child_process import child, signal_name
from firsttouch.host.cpusets import format_list
from firsttouch.host.topology import PROBE, probe_program
from firsttouch.records.schema import Record, software

NAME = PROBE
ASPECTS = (
    "topology",
    "latency",
    "bandwidth",
    "contention",
    "loaded-latency",
    "core-to-core",
    "locks",
    "correctness",
    "cores",
    "tails",
)
SCHEMA = 1
Say = Callable[[str], None]
#: The longest time without a message (s). The measurement of one placement is shorter.
SILENCE = 900.0
_ERROR = f"{NAME}: error: "
#: Exit status of the probe -> error. A status below 0 or above 128 means a signal.
_ERRORS: Mapping[int, type[FirstTouchError]] = {2: BadInput, 3: CannotHere}
#: Fields of a result that are not parameters of the case.
_OWN = {
    *("type", "aspect", "metric", "unit", "better", "value", "samples", "interval", "ended", "status", "reason"),
    *("partial", "pus", "pus_found", "pages", "policy", "threads", "banks", "pu_nodes", "memory_bytes"),
    *("stands_for", "waiting", "holding", "position"),
}


class ProbeResult(Struct, frozen=True):
    """One metric of one placement as the probe printed it; *data* is the JSON object.

    *samples* are in *unit*. *status* is valid, or invalid with a *reason* (wrong values or placement). A result
    with ``partial`` in *data* was cut short by a signal.
    """

    metric: str
    unit: str
    better: str
    samples: tuple[float, ...]
    status: str
    reason: str
    data: Mapping[str, Any]

    def records(self, version: str) -> Iterator[Record]:
        """Yield the record of this result, and for locks the share of time that the threads wait."""
        record = self.record(version)
        yield record
        if "waiting" in self.data:
            share = (float(self.data["waiting"]),)
            yield replace(record, metric="lock_waiting", unit="1", better="neither", samples=share)

    def record(self, version: str) -> Record:
        """Return the record of this result; its check is the aspect."""
        data = self.data
        pages, policy = data["pages"], data["policy"]
        parameters = {k: v for k, v in data.items() if k not in _OWN}
        parameters |= {"program": NAME, "pu_nodes": data["pu_nodes"], "threads": data["threads"]}
        parameters |= {"policy": "membind" if policy == "bind" else policy, "pages": pages["asked"]}
        if policy == "bind":
            parameters["bank"] = data["banks"][0]
        else:
            parameters["banks"] = data["banks"]
        if "shared" in data:  # the value belongs to these two PUs
            parameters["pus"] = data["pus"]
        if data.get("stands_for"):
            parameters["stands_for"] = data["stands_for"]
        asked = {"pus": data["pus"], "numa_nodes": data["banks"], "numactl": [], "policy": policy}
        placement = {
            "threads": data["threads"],
            "pus": sorted(data["pus_found"]),
            "held": sorted(data["pus_found"]),
            "pages": pages["found"],
            "policy": f"{policy}:{format_list(data['banks'])}",
            "verified": pages["verified"],
        }
        return Record(
            check=str(data["aspect"]).replace("-", "_"),
            metric=self.metric,
            unit=self.unit,
            better=self.better,  # type: ignore[arg-type]
            samples=self.samples,
            parameters=parameters,
            placement_asked=[asked],
            placement_found=[placement],
            status=self.status,  # type: ignore[arg-type]
            reason=self.reason,
            software=software(**{NAME: version}),
            order=drawn_order.for_record(int(data.get("position", 0))),
        )


class Report(Struct, frozen=True):
    """The output of one run: *begin* (host, options), the results, and how it ended.

    *status* is complete, partial (a signal), invalid (a result is) or failed (with the *reason*).
    """

    begin: Mapping[str, Any]
    results: tuple[ProbeResult, ...]
    status: str
    reason: str

    @property
    def version(self) -> str:
        """The probe's version."""
        return str(self.begin["probe"])

    def records(self) -> Iterator[Record]:
        """Yield the records of each result that was not cut short."""
        for result in self.results:
            if not result.data.get("partial"):
                yield from result.records(self.version)


def run(aspect: str, options: Sequence[str] = (), *, say: Say = print) -> Report:
    """Run the probe and return its report; *say* is called with each line of progress.

    An interrupt (KeyboardInterrupt) is passed on to the probe; the report is then partial. Raises BadInput,
    CannotHere or RunFailed with the probe's reason if it has no results.
    """
    running = follow(aspect, options, say=say)
    while True:
        try:
            next(running)
        except StopIteration as end:
            return cast(Report, end.value)


def follow(aspect: str, options: Sequence[str] = (), *, say: Say = print) -> Generator[list[Record], None, Report]:
    """Run the probe as :func:`run` does, but yield records while it runs; return its report.

    A probe without a message for SILENCE seconds is stopped: raises RunFailed.
    """
    argv = [str(probe_program()), aspect, "--jsonl", *options]
    lines: list[str] = []
    # Standard error is read here, and standard output goes to a file: neither can block the probe.
    with contextlib.ExitStack() as stack:
        read_end, write_end = os.pipe()
        stack.callback(os.close, read_end)
        out = os.memfd_create(NAME)
        stack.callback(os.close, out)
        try:
            probe = stack.enter_context(child(argv, stdout=out, stderr=write_end))
        finally:
            os.close(write_end)
        printed = _Printed(out)
        for line in _lines(read_end, probe):
            if line:
                lines.append(line)
                if not line.startswith(_ERROR):
                    say(line)
            if records := printed.records():
                yield records
        status = probe.wait()
        text = printed.all()
    reason = next((line.removeprefix(_ERROR) for line in lines if line.startswith(_ERROR)), "")
    if status in _ERRORS:
        raise _ERRORS[status](reason or f"{NAME} ended with status {status}")
    if status < 0:
        raise RunFailed(f"{NAME} ended with signal {signal_name(-status)}")
    if 1 < status < 128:
        raise RunFailed(f"{NAME} ended with status {status}: {lines[-1] if lines else 'it printed nothing'}")
    report = parse(text)
    if report.status == "failed":
        raise RunFailed(f"{NAME}: {report.reason}")
    if report.status == "complete" and (status or any(result.data.get("partial") for result in report.results)):
        raise RunFailed(f"{NAME} ended with status {status}, but its last line states a complete report")
    return report


def _lines(read_end: int, probe: subprocess.Popen[bytes]) -> Iterator[str]:
    """Yield the probe's messages line by line; an empty line after each second without one, and at the end."""
    rest = b""
    last = time.monotonic()
    while True:
        try:
            ready = select.select([read_end], [], [], min(1.0, SILENCE))[0]
            data = os.read(read_end, 1 << 16) if ready else b""
        except KeyboardInterrupt:
            probe.send_signal(signal.SIGINT)
            continue
        if not ready:
            if time.monotonic() - last >= SILENCE:
                raise RunFailed(f"{NAME} printed nothing for {SILENCE:.0f} s and was stopped")
            yield ""
            continue
        last = time.monotonic()
        *whole, rest = (rest + data).split(b"\n")
        if not data:
            whole = [rest, b""]
        yield from (line.decode(errors="replace") for line in whole)
        if not data:
            return


class _Printed:
    """The file that the probe writes its standard output to. Reading does not move the probe's file offset."""

    def __init__(self, file: int) -> None:
        self.file = file
        self.place = self.number = 0
        self.version = ""

    def records(self) -> list[Record]:
        """Return the records of the results since the last call, except those that were cut short."""
        data = os.pread(self.file, os.fstat(self.file).st_size - self.place, self.place)
        *lines, rest = data.split(b"\n")
        self.place += len(data) - len(rest)
        records: list[Record] = []
        for line in lines:
            self.number += 1
            data_of = _object(line.decode(errors="replace"), self.number)
            if self.number == 1:
                self.version = str(data_of.get("probe", ""))
            elif data_of.get("type") == "result" and not data_of.get("partial"):
                records.extend(_result(data_of, self.number).records(self.version))
        return records

    def all(self) -> str:
        """Return the whole output."""
        return os.pread(self.file, os.fstat(self.file).st_size, 0).decode(errors="replace")


def parse(text: str) -> Report:
    """Return the report of the JSON lines *text*; raises RunFailed for anything else.

    Without the last line (the probe was killed) the report is partial.
    """
    objects = [_object(line, number) for number, line in enumerate(text.split("\n")[:-1], start=1)]
    if not objects or objects[0].get("type") != "begin" or objects[0].get("schema") != SCHEMA:
        raise RunFailed(f"{NAME} printed no report of schema {SCHEMA}: {text[:80]!r}")
    rest = objects[1:]
    end: Mapping[str, Any] = {"status": "partial", "reason": "its output has no last line"}
    if rest and rest[-1].get("type") == "end":
        end = rest.pop()
        if end.get("count") != len(rest) or end.get("status") not in {"complete", "partial", "invalid", "failed"}:
            stated = f"{end.get('count')}, {end.get('status')}"
            raise RunFailed(f"{NAME} printed {len(rest)} results, but its last line states {stated}")
    results = tuple(_result(data, number) for number, data in enumerate(rest, start=2))
    return Report(objects[0], results, str(end["status"]), str(end.get("reason", "")))


def _object(line: str, number: int) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except json.JSONDecodeError as error:
        raise RunFailed(f"{NAME}, line {number}: not JSON: {error.msg}") from error
    if not isinstance(data, dict):
        raise RunFailed(f"{NAME}, line {number}: no JSON object")
    return data


def _result(data: Mapping[str, Any], number: int) -> ProbeResult:
    try:
        samples = tuple(float(s) for s in data["samples"])
        pages = data["pages"]
        lists = (data["pus"], data["pus_found"], data["banks"], data["pu_nodes"])
        whole = (
            data["type"] == "result"
            and isinstance(data["samples"], list)
            and all(isinstance(v, int) for members in lists for v in members)
            and isinstance(pages["found"], Mapping)
            and {"asked", "verified"} <= pages.keys()
            and data["policy"] in {"bind", "interleave"}
            and data["status"] in {"valid", "invalid"}
            and data["better"] in {"higher", "lower"}
            and data["banks"]
            and len(data["pus"]) == data["threads"]
            and str(data["aspect"]) in ASPECTS
        )
        if not whole or not samples or not all(math.isfinite(s) and s >= 0 for s in samples):
            raise ValueError
        texts = (str(data[k]) for k in ("metric", "unit", "better"))
        metric, unit, better = texts
        return ProbeResult(metric, unit, better, samples, data["status"], str(data["reason"]), data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunFailed(f"{NAME}, line {number}: not a result: {json.dumps(data)[:120]}") from error
