# SPDX-License-Identifier: Apache-2.0
"""firsttouch-probe, the native program of probe/: finding or building it, running it, reading its JSON lines."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from firsttouch.cpulist import format_list
from firsttouch.errors import BadInput, CannotHere, FirstTouchError, Missing, RunFailed
from firsttouch.folders import ROOT
from firsttouch.records import Record, software

NAME = "firsttouch-probe"
SOURCE = ROOT / "probe"
ASPECTS = ("topology", "latency", "bandwidth", "contention", "loaded-latency")
SCHEMA = 1
Say = Callable[[str], None]
#: What the probe's exit status means; below 0 and above 128 it is a signal.
_ERRORS: Mapping[int, type[FirstTouchError]] = {2: BadInput, 3: CannotHere}
#: Fields of a result that are no parameters of the case.
_OWN = {
    *("type", "aspect", "metric", "unit", "better", "value", "samples", "interval", "ended", "status", "reason"),
    *("partial", "pus", "pus_found", "pages", "policy", "threads", "banks", "pu_nodes", "memory_bytes"),
    "stands_for",
}


@dataclass(frozen=True)
class Result:
    """One metric of one placement as the probe printed it; *data* is the whole JSON object.

    ``samples`` are in ``unit``; a ``partial`` one was cut short by a signal. ``status`` is valid, or invalid
    with a ``reason`` (values or placement were wrong).
    """

    metric: str
    unit: str
    better: str
    samples: tuple[float, ...]
    status: str
    reason: str
    data: Mapping[str, Any]

    def record(self, version: str) -> Record:
        """Return the record of this result (check = aspect)."""
        data = self.data
        pages, policy = data["pages"], data["policy"]
        parameters = {k: v for k, v in data.items() if k not in _OWN}
        parameters |= {"program": NAME, "pu_nodes": data["pu_nodes"], "threads": data["threads"]}
        parameters |= {"policy": "membind" if policy == "bind" else policy, "pages": pages["asked"]}
        if policy == "bind":
            parameters["bank"] = data["banks"][0]
        else:
            parameters["banks"] = data["banks"]
        if data.get("stands_for"):
            parameters["stands_for"] = data["stands_for"]
        asked = {"pus": data["pus"], "numa_nodes": data["banks"], "numactl": [], "policy": policy}
        found = {
            "pus": sorted(data["pus_found"]),
            "pages": pages["found"],
            "policy": f"{policy}:{format_list(data['banks'])}",
            "verified": pages["verified"],
        }
        return Record(
            check=str(data["aspect"]),
            metric=self.metric,
            unit=self.unit,
            better=self.better,  # type: ignore[arg-type]
            samples=self.samples,
            parameters=parameters,
            placement_asked=[asked],
            placement_found=[found],
            status=self.status,  # type: ignore[arg-type]
            reason=self.reason,
            software=software(**{NAME: version}),
        )


@dataclass(frozen=True)
class Report:
    """What one run printed: *begin* (host, options), the results, and how it ended.

    ``status`` is complete, partial (a signal), invalid (a result is) or failed (with the ``reason``).
    """

    begin: Mapping[str, Any]
    results: tuple[Result, ...]
    status: str
    reason: str
    end: Mapping[str, Any] = field(default_factory=dict)

    @property
    def version(self) -> str:
        """The probe's version."""
        return str(self.begin["probe"])

    def records(self) -> Iterator[Record]:
        """Yield a record for each result that was not cut short."""
        yield from (r.record(self.version) for r in self.results if not r.data.get("partial"))

    def to_dict(self) -> dict[str, Any]:
        """Return the one JSON document of ``firsttouch probe --json``, as firsttouch-probe --json prints it."""
        head = {k: v for k, v in self.begin.items() if k != "type"}
        tail = {k: v for k, v in self.end.items() if k != "type"}
        results = [{k: v for k, v in r.data.items() if k != "type"} for r in self.results]
        return {**head, "results": results, **tail, "status": self.status, "reason": self.reason}


def program() -> Path:
    """Return the probe: of FIRSTTOUCH_PROBE, beside Python, or on PATH; in a checkout it is built if need be.

    Raises Missing where it is not there, or where what its build needs is not.
    """
    if given := os.environ.get("FIRSTTOUCH_PROBE"):
        if not os.access(given, os.X_OK):
            raise Missing(f"FIRSTTOUCH_PROBE names {given}, which is no program")
        return Path(given)
    beside = Path(sys.executable).with_name(NAME)
    if (SOURCE / "CMakeLists.txt").is_file() and not os.access(beside, os.X_OK):
        return build(ROOT / ".cache" / "probe")
    found = beside if os.access(beside, os.X_OK) else shutil.which(NAME)
    if not found:
        raise Missing(f"{NAME} is not there: `make setup` builds it, or install it (cmake -S probe)")
    return Path(found)


def build(folder: Path, *, sanitize: str = "", compiler: str = "") -> Path:
    """Build the probe in *folder* (again only what changed) and return the program.

    *sanitize* are sanitizers ("address,undefined"), *compiler* the C compiler (default: CMake's choice). Two
    builds in one folder wait for each other. Raises Missing without cmake, RunFailed where the build fails.
    """
    if shutil.which("cmake") is None:
        raise Missing(f"{NAME} is not built, and cmake is not on PATH: `make setup` sees to both")
    folder.mkdir(parents=True, exist_ok=True)
    configure = ["cmake", "-S", str(SOURCE), "-B", str(folder), f"-DSANITIZE={sanitize}"]
    if compiler:
        configure.append(f"-DCMAKE_C_COMPILER={compiler}")
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for argv in (configure, ["cmake", "--build", str(folder)]):
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            if done.returncode:
                lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
                told = next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "")
                raise RunFailed(f"{NAME} cannot be built ({' '.join(argv[:2])}): {told}")
    return folder / NAME


def helped() -> int:
    """Print the probe's own help and return its exit status."""
    return subprocess.run([program(), "--help"], check=False).returncode


def run(aspect: str, options: Sequence[str] = (), *, say: Say = print) -> Report:
    """Run the probe and return its report; its progress goes line by line to *say*.

    An interruption (KeyboardInterrupt) is handed on to the probe; the report is then partial. Raises BadInput,
    CannotHere or RunFailed with the probe's own reason where it has no result to show for itself.
    """
    argv = [str(program()), aspect, *options, "--jsonl"]
    lines: list[str] = []
    # Standard error is read here, standard output goes to a file: neither waits for the other.
    with contextlib.ExitStack() as stack:
        read_end, write_end = os.pipe()
        out = stack.enter_context(os.fdopen(os.memfd_create(NAME), "w+", encoding="utf-8"))
        errors = stack.enter_context(os.fdopen(read_end, encoding="utf-8", errors="replace"))
        probe = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=out, stderr=write_end, start_new_session=True
        )
        os.close(write_end)
        while True:
            try:
                for line in errors:
                    lines.append(line.rstrip("\n"))
                    if not lines[-1].startswith(f"{NAME}: error: "):
                        say(lines[-1])
                status = probe.wait()
                break
            except KeyboardInterrupt:
                probe.send_signal(signal.SIGINT)
        out.seek(0)
        text = out.read()
    said = next((line.split(": error: ", 1)[1] for line in lines if line.startswith(f"{NAME}: error: ")), "")
    if status in _ERRORS:
        raise _ERRORS[status](said or f"{NAME} ended with status {status}")
    if status < 0:
        raise RunFailed(f"{NAME} ended with signal {signal.Signals(-status).name}")
    report = parse(text)
    if report.status == "failed":
        raise RunFailed(f"{NAME}: {report.reason}")
    return report


def parse(text: str) -> Report:
    """Return the report of the JSON lines *text*; raises RunFailed where they are not that.

    Lines that end without an end (a killed probe) are a partial report.
    """
    objects = [_object(line, number) for number, line in enumerate(text.split("\n")[:-1], start=1)]
    if not objects or objects[0].get("type") != "begin" or objects[0].get("schema") != SCHEMA:
        raise RunFailed(f"{NAME} printed no report of schema {SCHEMA}: {text[:80]!r}")
    rest = objects[1:]
    end: Mapping[str, Any] = {"status": "partial", "reason": "it ended without saying so"}
    if rest and rest[-1].get("type") == "end":
        end = rest.pop()
        if end.get("count") != len(rest) or end.get("status") not in {"complete", "partial", "invalid", "failed"}:
            raise RunFailed(f"{NAME} printed {len(rest)} results and says {end.get('count')}, {end.get('status')}")
    results = tuple(_result(data, number) for number, data in enumerate(rest, start=2))
    return Report(objects[0], results, str(end["status"]), str(end.get("reason", "")), end)


def _object(line: str, number: int) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except json.JSONDecodeError as error:
        raise RunFailed(f"{NAME}, line {number}: not JSON: {error.msg}") from error
    if not isinstance(data, dict):
        raise RunFailed(f"{NAME}, line {number}: no JSON object")
    return data


def _result(data: Mapping[str, Any], number: int) -> Result:
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
        return Result(metric, unit, better, samples, data["status"], str(data["reason"]), data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunFailed(f"{NAME}, line {number}: not a result: {json.dumps(data)[:120]}") from error
