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
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

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


class Report:
    """The report of one run, taken line by line as the probe prints it.

    *status* is complete, partial (a signal), invalid (a result is) or failed (with the *reason*). *has_cut*: a
    result was cut short by a signal. *size* is the number of bytes so far.
    """

    def __init__(self) -> None:
        self.version = ""
        self.status, self.reason = "partial", "its output has no last line"
        self.has_cut = False
        self.size = self._number = 0
        self._rest = b""
        self._is_ended = False

    def take(self, data: bytes) -> list[Record]:
        """Take the next *data*; return the records of its complete lines, except those that were cut short.

        Raises RunFailed for anything but a report.
        """
        self.size += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [record for line in lines for record in self._records(line.decode(errors="replace"))]

    def _records(self, line: str) -> Sequence[Record]:
        self._number += 1
        data = _object(line, self._number)
        if self._number == 1:
            if data.get("type") != "begin" or data.get("schema") != SCHEMA:
                raise RunFailed(f"{NAME} printed no report of schema {SCHEMA}: {line[:80]!r}")
            self.version = str(data["probe"])
            return ()
        if data.get("type") == "end" and not self._is_ended:
            results = self._number - 2
            self._is_ended, self.status, self.reason = True, str(data.get("status")), str(data.get("reason", ""))
            if data.get("count") != results or self.status not in {"complete", "partial", "invalid", "failed"}:
                stated = f"{data.get('count')}, {self.status}"
                raise RunFailed(f"{NAME} printed {results} results, but its last line states {stated}")
            return ()
        records = _records(data, self._number, self.version)
        is_cut = bool(data.get("partial"))
        self.has_cut |= is_cut
        return () if is_cut else records

    def finish(self, status: int) -> None:
        """Raise RunFailed for a failed run that ended with *status*, KeyboardInterrupt for an interrupted one."""
        if not self._number:
            raise RunFailed(f"{NAME} printed no report of schema {SCHEMA}: {self._rest[:80]!r}")
        if self.status == "failed":
            raise RunFailed(f"{NAME}: {self.reason}")
        if self.status == "complete" and (status or self.has_cut):
            raise RunFailed(f"{NAME} ended with status {status}, but its last line states a complete report")
        if self.status == "partial":
            raise KeyboardInterrupt


def follow(aspect: str, options: Sequence[str] = (), *, say: Say = print) -> Iterator[list[Record]]:
    """Run the probe, and yield records while it runs; *say* is called with each line of progress.

    An interrupt is passed on to the probe, and raised again after its last records. A probe without a message for
    SILENCE seconds is stopped. Raises BadInput, CannotHere or RunFailed with the probe's reason.
    """
    argv = [str(probe_program()), aspect, "--jsonl", *options]
    lines: list[str] = []
    report = Report()
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
        for line in _lines(read_end, probe):
            if line:
                lines.append(line)
                if not line.startswith(_ERROR):
                    say(line)
            if records := report.take(_printed(out, report.size)):
                yield records
        status = probe.wait()
        if records := report.take(_printed(out, report.size)):
            yield records
    reason = next((line.removeprefix(_ERROR) for line in lines if line.startswith(_ERROR)), "")
    if status in _ERRORS:
        raise _ERRORS[status](reason or f"{NAME} ended with status {status}")
    if status < 0:
        raise RunFailed(f"{NAME} ended with signal {signal_name(-status)}")
    if 1 < status < 128:
        raise RunFailed(f"{NAME} ended with status {status}: {lines[-1] if lines else 'it printed nothing'}")
    report.finish(status)


def _printed(file: int, begin: int) -> bytes:
    """Return what the probe wrote to *file* from byte *begin* on, without moving its file offset."""
    return os.pread(file, os.fstat(file).st_size - begin, begin)


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


def _object(line: str, number: int) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except json.JSONDecodeError as error:
        raise RunFailed(f"{NAME}, line {number}: not JSON: {error.msg}") from error
    if not isinstance(data, dict):
        raise RunFailed(f"{NAME}, line {number}: no JSON object")
    return data


def _records(data: Mapping[str, Any], number: int, version: str) -> Sequence[Record]:
    """Return the record of a result, whose check is the aspect, and for locks the share of time that threads wait.

    Raises RunFailed if line *number*, with *data*, is not a result.
    """
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
        record = _record(data, samples, version)
        waiting = [(float(data["waiting"]),)] if "waiting" in data else []
        share = {"metric": "lock_waiting", "unit": "1", "better": "neither"}
        return [record, *(replace(record, samples=part, **share) for part in waiting)]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunFailed(f"{NAME}, line {number}: not a result: {json.dumps(data)[:120]}") from error


def _record(data: Mapping[str, Any], samples: tuple[float, ...], version: str) -> Record:
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
        metric=str(data["metric"]),
        unit=str(data["unit"]),
        better=data["better"],
        samples=samples,
        parameters=parameters,
        placement_asked=[asked],
        placement_found=[placement],
        status=data["status"],
        reason=str(data["reason"]),
        software=software(**{NAME: version}),
        order=drawn_order.for_record(int(data.get("position", 0))),
    )
