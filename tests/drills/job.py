# SPDX-License-Identifier: Apache-2.0
"""A job of modelled hosts in this process: what ``sbatch -N8 slurm/validate.sbatch`` runs, one task for each host.

The tasks are threads of which one runs at a time. A task that waits passes the turn on; its clock then shows the
time to which it waited. Commands, steps, journals, rounds and verdicts are the real ones; the probe is the model.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import modelled_host
import pytest

from factories import topologies
from factories.processes import Completed, run_captured, write_program
from firsttouch import cli
from firsttouch.benchmarks import kernel_settings, probe, recording
from firsttouch.campaign import run as running
from firsttouch.campaign.journal import Journal
from firsttouch.clock import Clock
from firsttouch.errors import RunFailed
from firsttouch.execution import host_lock
from firsttouch.fleet import measuring
from firsttouch.host import configuration, memory_modules, topology
from firsttouch.records import samples_table, schema, step_outcome
from firsttouch.records.schema import Record
from firsttouch.report import writing

T = TypeVar("T")

SYSTEM = """\
name: modelled
description: "the modelled hosts of one order"
hostnames: ["n[0-9]+"]
facts:
  source: "the order"
  processor: "AMD EPYC 7313"
  packages: 2
  numa_nodes: 4
  cores_per_numa_node: 4
  threads_per_core: 2
  memory_per_numa_node: "64 GiB"
  memory: {type: DDR4, transfer_rate: "3200 MT/s", channels_per_package: 8, source: "the order"}
partitions:
  - {name: all, description: Slurm, scheduler: slurm, launcher: local, access: [--exclusive], environs: [builtin]}
"""
#: A Slurm in which every host is idle.
SCONTROL = """
case "$*" in
  *"show node "*) echo "NodeName=$4 State=IDLE Reason=";;
  *) exit 1;;
esac"""


class _Turns(Clock):
    """Lets one of several threads run at a time, and lets time pass when all of them wait."""

    def __init__(self, names: Sequence[str]) -> None:
        self.now = 0.0
        self._wake = dict.fromkeys(names, 0.0)
        self._turn = threading.Condition()
        self._running = names[0]

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        name = threading.current_thread().name
        self._wake[name] = self.now + seconds
        self._pass_on()
        self.take(name)

    def take(self, name: str) -> None:
        """Wait for the turn of this thread."""
        with self._turn:
            self._turn.wait_for(lambda: self._running == name)
        enter(name)

    def end(self, name: str) -> None:
        """Leave the turns to the other threads."""
        del self._wake[name]
        if self._wake:
            self._pass_on()

    def _pass_on(self) -> None:
        with self._turn:
            self._running = min(self._wake, key=lambda name: self._wake[name])
            self.now = max(self.now, self._wake[self._running])
            self._turn.notify_all()


def _once(function: Callable[..., T], key: Callable[..., object]) -> Callable[..., T]:
    """Return *function* with its results kept by the *key* of its arguments."""
    kept: dict[object, T] = {}

    def call(*args: Any, **named: Any) -> T:
        name = key(*args, **named)
        if name not in kept:
            kept[name] = function(*args, **named)
        return kept[name]

    return call


def _content(records: Iterable[Record], *system: str) -> object:
    return tuple((r.host, r.check, r.metric, r.samples, r.time) for r in records), system


def _journalled(own: Journal, begin: int, end: int) -> object:
    with own.records.open("rb") as file:
        file.seek(begin)
        return own.host, file.read(end - begin)


def _judgement(table: object, system: object, *, missing: object = None, **_configurations: object) -> object:
    """Return what a judgement depends on: a table, which is kept, with its configurations, and missing steps."""
    return id(table), repr(system), repr(missing)


class _Task:
    """A task of the job: its output and its messages."""

    def __init__(self, host: str) -> None:
        self.host, self.out, self.err = host, io.StringIO(), io.StringIO()
        self.status = -1


_tasks: dict[str, _Task] = {}
_locks: Path


def enter(host: str) -> None:
    """Continue as the task of a *host*."""
    os.environ["SLURMD_NODENAME"] = host
    os.environ["FIRSTTOUCH_LOCK"] = str(_locks / host)
    if task := _tasks.get(host):
        sys.stdout, sys.stderr = task.out, task.err


class Cluster:
    """Modelled hosts with the folder of their results; :meth:`job` measures them, :meth:`call` is a command."""

    _read_configuration = staticmethod(configuration.read)
    _from_dict = staticmethod(_once(schema.from_dict, repr))
    _records_at = staticmethod(_once(Journal._records_at, _journalled))
    _of_records = staticmethod(_once(samples_table.of_records, _content))
    _judged = staticmethod(_once(measuring.judged, _judgement))
    #: The records of steps that were measured before, by all that they depend on.
    _measured: ClassVar[dict[tuple[object, ...], tuple[int, bytes, bytes, bytes, int]]] = {}

    def __init__(
        self,
        folder: Path,
        fleet: modelled_host.Fleet,
        hosts: Sequence[str],
        *,
        effort: str = "smoke",
        facts: Mapping[str, str] | None = None,
    ) -> None:
        self.folder, self.fleet, self.hosts, self.effort = folder, fleet, hosts, effort
        self.facts = repr(facts)
        self.runs: dict[str, int] = dict.fromkeys(hosts, 0)
        self.counters: dict[str, dict[recording.Counter, int]] = {host: {} for host in hosts}
        (folder / "systems").mkdir(parents=True)
        lines = SYSTEM.splitlines()
        for name, value in (facts or {}).items():
            at = next(number for number, line in enumerate(lines) if line.startswith(f"  {name}:"))
            lines[at : at + 1] = [f"  {name}: {value}"] if value else []
        (folder / "systems" / "modelled.yaml").write_text("\n".join(lines) + "\n")
        (folder / "bin").mkdir()
        write_program(folder / "bin" / "scontrol", SCONTROL)
        write_program(folder / "bin" / "sinfo", "exit 1")

    @contextlib.contextmanager
    def environment(self, **variables: str) -> Iterator[None]:
        """Be on this cluster: the probe is the model, and files of the host come from the model."""
        global _locks  # noqa: PLW0603 - threads share this process's environment
        _locks = self.folder / "locks"
        ancestors = host_lock.ancestors
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {
                "FIRSTTOUCH_OUT": str(self.folder),
                "FIRSTTOUCH_SYSTEMS": str(self.folder / "systems"),
                "FIRSTTOUCH_VERDICTS": str(self.folder / "verdicts"),
                "FIRSTTOUCH_LOCK": str(_locks),
                "FIRSTTOUCH_EFFORT": self.effort,
                "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
                "FIRSTTOUCH_SYSTEM": "modelled",
                "FIRSTTOUCH_PARTITION": "all",
                "SLURM_JOB_PARTITION": "all",
                **variables,
            }.items():
                patch.setenv(name, value)
            # Figures take most of the time of a report; one host has them.
            patch.setattr(writing, "MOST_DRAWN", 1)
            patch.setattr(probe, "child", self._probe)
            patch.setattr(topology, "probe_xml", self._topology)
            patch.setattr(running, "child", self._step)
            patch.setattr(running, "follow", lambda status, _every, _beat: status)
            # A step is a child of the process that holds the host's lock.
            patch.setattr(host_lock, "ancestors", lambda: [os.getpid(), *ancestors()])
            idle = Record("topology", "busy_pus", "1", "neither", (0.0,))
            patch.setattr(kernel_settings, "busy_pus", lambda *_: idle)
            patch.setattr(kernel_settings, "_frequency", lambda _root: self._property("frequency_share", 1.0))
            patch.setattr(configuration, "read", self._configuration)
            patch.setattr(memory_modules, "_dmidecode", self._dmidecode)
            patch.setattr(recording, "read_counters", self._read_counters)
            # Each host of a job and each later command compute the same from the same records, and good hosts of
            # several fleets have the same ones: once is enough here.
            patch.setattr(schema, "from_dict", self._from_dict)
            patch.setattr(Journal, "_records_at", self._records_at)
            patch.setattr(samples_table, "of_records", self._of_records)
            patch.setattr(measuring, "judged", self._judged)
            # Results of killed hosts are not the topic here.
            patch.setattr(os, "fsync", lambda _descriptor: None)
            yield

    @property
    def _host(self) -> modelled_host.Host:
        return self.fleet.host(os.environ["SLURMD_NODENAME"])

    def _property(self, name: str, good: float) -> float:
        return self._host.part("host", name, good)

    def _topology(self, _fsroot: Path | None = None) -> str:
        host = self._host
        return topologies.host_of_packages(
            modelled_host.PACKAGES if host.nodes > 1 else 1,
            host.nodes // modelled_host.PACKAGES or 1,
            modelled_host.NODES * modelled_host.CORES // host.nodes,
            int(modelled_host.MEMORY * modelled_host.NODES // host.nodes * self._property("memory", 1.0)),
            host.threads,
        )

    def _configuration(self, host: topology.Topology, **more: Any) -> configuration.Settings:
        """Return the configuration that the files of the modelled host state."""
        root = self.folder / "roots" / self._host.name
        for name, text in self._host.files().items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text + "\n")
        return self._read_configuration(host, root, **more)

    def _dmidecode(self, *_types: str) -> str:
        if "unreadable" in self._host.faults.get("modules", {}):
            raise RunFailed("dmidecode reads no memory device: /dev/mem: Permission denied")
        return self._host.dmidecode()

    def _read_counters(self, _root: Path = Path("/")) -> dict[recording.Counter, int]:
        """Return the host's counters, which count during each measurement what a fault says."""
        counts = self.counters[os.environ["SLURMD_NODENAME"]]
        events = {"corrected_errors": 0, "uncorrected_errors": 0, "throttle_events": 0, "machine_checks": 0}
        events |= self._host.faults.get("counters", {})
        for metric, count in events.items():
            module = "DIMM_A1" if "corrected" in metric else "package 0"
            counter = recording.Counter(metric, module)
            counts[counter] = counts.get(counter, -int(count)) + int(count)
        return dict(counts)

    @contextlib.contextmanager
    def _probe(self, argv: Sequence[str], *, stdout: int, stderr: int) -> Iterator[_Ended]:
        name = os.environ["SLURMD_NODENAME"]
        status, out, err = self.fleet.output(
            name, self.runs[name], [word for word in argv[1:] if word != "--jsonl"]
        )
        self.runs[name] += 1
        os.write(stdout, out.encode())
        os.write(stderr, err.encode())
        yield _Ended(status)

    @contextlib.contextmanager
    def _step(
        self, command: Sequence[str], *, stderr: io.BufferedWriter, env: Mapping[str, str], **_: object
    ) -> Iterator[int]:
        """Run a step's command in this thread, or repeat what it gave under the same conditions."""
        name = os.environ["SLURMD_NODENAME"]
        words = list(command[command.index("measure") :])
        at = words.index("--records") + 1
        file, outcome = Path(words[at]), Path(env[step_outcome.VARIABLE])
        conditions = (
            self.effort,
            self.facts,
            name,
            self.fleet.seed,
            self.fleet.spread,
            self.fleet.noise,
            repr(self.fleet.faults.get(name)),
        )
        key = (*conditions, self.runs[name], *words[:at], *words[at + 1 :])
        if key not in self._measured:
            log = io.StringIO()
            streams, old = (sys.stdout, sys.stderr), dict(os.environ)
            sys.stdout, sys.stderr = io.StringIO(), log
            os.environ.update(env)
            before = self.runs[name]
            try:
                status = cli.main(words)
            finally:
                os.environ.clear()
                os.environ.update(old)
                sys.stdout, sys.stderr = streams
            written = [path.read_bytes() if path.exists() else b"" for path in (file, outcome)]
            type(self)._measured[key] = (status, *written, log.getvalue().encode(), self.runs[name] - before)
        status, content, stated, log_text, runs = self._measured[key]
        if not outcome.exists():
            self.runs[name] += runs
            outcome.write_bytes(stated)
            if content:
                file.write_bytes(content)
        stderr.write(log_text)
        stderr.flush()
        yield status

    def job(self, number: int, campaign: str, *options: str, hosts: Sequence[str] = ()) -> dict[str, Completed]:
        """Run ``firsttouch campaign run validate`` on all hosts at once, as slurm/validate.sbatch does."""
        names = list(hosts or self.hosts)
        argv = [
            "campaign",
            "run",
            "validate",
            "--system",
            "modelled",
            "--campaign",
            campaign,
            "--no-collect",
            *options,
        ]
        turns = _Turns(names)
        _tasks.clear()
        _tasks.update({name: _Task(name) for name in names})

        def run(name: str) -> None:
            turns.take(name)
            try:
                _tasks[name].status = cli.main(argv)
            except BaseException:
                traceback.print_exc()
                raise
            finally:
                turns.end(name)

        variables = {
            **{"SLURM_JOB_ID": str(number), "SLURM_JOB_NUM_NODES": str(len(names))},
            **{"SLURM_STEP_NODELIST": ",".join(names), "SLURM_JOB_END_TIME": "4000000000"},
        }
        streams = sys.stdout, sys.stderr
        with self.environment(**variables), pytest.MonkeyPatch.context() as patch:
            patch.setattr(running, "run", functools.partial(running.run, clock=turns))
            threads = [threading.Thread(target=run, args=[name], name=name) for name in names]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            sys.stdout, sys.stderr = streams
        return {name: Completed(t.status, t.out.getvalue(), t.err.getvalue()) for name, t in _tasks.items()}

    def call(self, *argv: object, host: str = "login") -> Completed:
        """Run a command on a host without measurements."""
        with self.environment(SLURMD_NODENAME=host):
            return run_captured(*argv)


class _Ended:
    """A program that has ended."""

    def __init__(self, status: int) -> None:
        self.status = status

    def wait(self) -> int:
        return self.status
