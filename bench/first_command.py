# SPDX-License-Identifier: Apache-2.0
"""One job of eight new hosts, one of which lacks a memory channel: its verdicts, and what they cost.

Method. Each seed is a fleet of HOSTS hosts with the hardware of the tutorial docs/tutorials/eight-hosts.md. Good
hosts differ by SPREAD in each metric, repetitions by the noise (normal deviations), and BAD has three quarters of
the bandwidth of bank 0. There are no references. A process per host runs `firsttouch campaign run validate` as the
tasks of a job do, with leases, journals and rounds. The probe is a function (tests/slurm/modelled_probe.py), and
Slurm is a few variables. With --slurm it is a real Slurm of as many hosts, and the tutorial's command.

The answer is right if BAD fails, no other host does, and the highest status of a task is 1. FIRSTTOUCH_EFFORT and
--step choose what is measured: judging all metrics of eight hosts takes minutes for each seed. It is run by hand:
FIRSTTOUCH_EFFORT=smoke python bench/first_command.py --seeds 20 --step topology --step 'bandwidth-*'
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "tests" / "slurm"))
import cluster
import modelled_probe
from modelled_probe import FACTS, Model, topology_xml

from firsttouch import cli
from firsttouch.benchmarks import kernel_settings, probe
from firsttouch.campaign import rounds
from firsttouch.campaign.run import _Runner
from firsttouch.execution import host_lock
from firsttouch.host import topology
from firsttouch.records.schema import Record

HOSTS, BAD, SPREAD = tuple(f"cn{i:02}" for i in range(1, 9)), "cn07", 0.01
#: Seconds between two looks at the journals of other hosts; here a round takes seconds.
POLL = 0.05
SYSTEM = f"""\
name: example
description: "8 hosts of 2 x 64 cores"
hostnames: ["cn[0-9]+"]
{FACTS}partitions:
  - name: exclusive
    description: "whole hosts by Slurm"
    scheduler: slurm
    launcher: local
    access: ["--exclusive"]
    environs: [builtin]
"""


def measure_in_process(model: Model, host: str) -> None:
    """Let this process measure *host* by the *model*, without starting the probe or itself again."""
    runs = iter(range(10**9))

    def follow(aspect: str, options: Sequence[str], **_: object) -> Iterator[list[Record]]:
        given = dict(option.removeprefix("--").partition("=")[::2] for option in options)
        if given.get("pages") == "huge":
            raise probe.CannotHere("there are no huge pages")
        results = [json.dumps(r) for r in model.results(host, next(runs), aspect, given)]
        begin = {"type": "begin", "probe": "1.0.0", "schema": 1, "aspect": aspect}
        end = {"type": "end", "status": "complete", "reason": "", "count": len(results)}
        report = probe.parse("\n".join([json.dumps(begin), *results, json.dumps(end), ""]))
        yield list(report.records())
        return report

    def command(_runner: _Runner, argv: list[str], log: Path, _beat: Callable[[], None]) -> int:
        with log.open("w") as err, contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()):
            return cli.main(argv)

    probe.follow = follow
    topology.probe_xml = lambda _=None: topology_xml()
    host_lock.measuring = lambda *_, **__: contextlib.nullcontext()
    kernel_settings.records = lambda *_: iter(())
    _Runner._command = command
    rounds._POLL = POLL


def task(model: Model, host: str, folder: Path, steps: Sequence[str]) -> int:
    """Run the task of *host* in a job; return its exit status."""
    os.environ |= {
        "FIRSTTOUCH_OUT": str(folder),
        "FIRSTTOUCH_SYSTEMS": str(folder / "systems"),
        "FIRSTTOUCH_LOCK": str(folder),
        "FIRSTTOUCH_SYSTEM": "example",
        "SLURM_JOB_ID": "1",
        "SLURM_JOB_NUM_NODES": str(len(HOSTS)),
        "SLURM_STEP_NODELIST": ",".join(HOSTS),
        "SLURMD_NODENAME": host,
    }
    measure_in_process(model, host)
    argv = ["campaign", "run", "validate", "--system", "example", "--campaign", "new", "--no-collect", "--json"]
    argv += [f"--step={pattern}" for pattern in steps]
    with (
        (folder / f"{host}.err").open("w") as err,
        (folder / f"{host}.json").open("w") as out,
        contextlib.redirect_stderr(err),
        contextlib.redirect_stdout(out),
    ):
        return cli.main(argv)


def job(model: Model, folder: Path, steps: Sequence[str]) -> dict[str, Any]:
    """Run a job of all hosts in *folder*; return the statuses, the documents and the words by host."""
    (folder / "systems").mkdir()
    (folder / "systems" / "example.yaml").write_text(SYSTEM)
    pids = {}
    for host in HOSTS:
        if not (pid := os.fork()):
            status = 99
            try:
                status = task(model, host, folder, steps)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        pids[pid] = host
    statuses = {pids[pid]: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids}
    documents = {host: json.loads((folder / f"{host}.json").read_text() or "{}") for host in HOSTS}
    return {"statuses": statuses, "documents": documents}


def job_of_slurm(model: Model, folder: Path, steps: Sequence[str]) -> dict[str, Any]:
    """Run the tutorial's command on a real Slurm in *folder*; return what :func:`job` returns.

    Its output is printed, too. The hosts' documents are those of `firsttouch validate` after the job.
    """
    site_slurm = cluster.Slurm(folder / "slurm", len(HOSTS), name="cn{:02}")
    probe_file, systems = folder / "probe", folder / "systems"
    program = Path(modelled_probe.__file__)
    probe_file.write_text(f'#!/bin/sh\nexec {sys.executable} {program} "$@"\n')
    probe_file.chmod(0o755)
    systems.mkdir()
    (systems / "example.yaml").write_text(SYSTEM)
    (folder / "model.json").write_text(json.dumps(asdict(model)))
    env = {
        **{"FIRSTTOUCH_OUT": str(folder), "FIRSTTOUCH_SYSTEMS": str(systems), "FIRSTTOUCH_MODEL": str(folder)},
        **{"FIRSTTOUCH_PROBE": str(probe_file), "FIRSTTOUCH_EFFORT": os.environ.get("FIRSTTOUCH_EFFORT", "full")},
    }
    try:
        site_slurm.up()
        patterns = [f"--step={pattern}" for pattern in steps]
        submitted = ["-N", len(HOSTS), "slurm/validate.sbatch", "--system", "example", *patterns]
        number = site_slurm.sbatch(*submitted, env=env)
        site_slurm.until(lambda: not site_slurm.ask("squeue", "-h", "-j", number, check=False).strip(), "it", 3600)
        ((_, code),) = site_slurm.ends(number).values()
        program = Path(sys.executable).with_name("firsttouch")
        argv = ["validate", "--system", "example", "--json", folder / "campaigns" / f"validate-{number}"]
        document = json.loads(site_slurm.call(program, *argv, env=env).stdout)
        print(site_slurm.output(number), file=sys.stderr)
    finally:
        site_slurm.down()
    spent = {"repetitions": [], "seconds": 0, "limit": "", "undecided": {}}
    documents = {host["host"]: {"verdict": host, "spent": spent} for host in document["hosts"]}
    return {"statuses": {BAD: int(code.partition(":")[0])}, "documents": documents}


def row(model: Model, steps: Sequence[str], run: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """Return the row of the table for one fleet."""
    with tempfile.TemporaryDirectory() as name:
        done = run(model, Path(name), steps)
    verdicts = {host: document["verdict"] for host, document in done["documents"].items()}
    words = {host: verdict["verdict"] for host, verdict in verdicts.items()}
    others = Counter(word for host, word in words.items() if host != BAD)
    spent = done["documents"][BAD]["spent"]
    return {
        "noise": model.noise,
        "seed": model.seed,
        "right": words[BAD] == "fail" and "fail" not in others and max(done["statuses"].values()) == 1,
        BAD: words[BAD],
        "others": dict(others),
        "causes": [cause.partition(":")[0] for cause in verdicts[BAD]["causes"]],
        "statuses": sorted(set(done["statuses"].values())),
        "repetitions": spent["repetitions"],
        "seconds": round(spent["seconds"]),
        "limit": spent["limit"],
        "undecided": sum(map(len, spent["undecided"].values())),
    }


def main() -> None:
    """Print a line of JSON per fleet, and the number of right answers."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--spread", type=float, default=SPREAD)
    parser.add_argument("--noise", type=float, nargs="+", default=[0.01, 0.02])
    parser.add_argument("--step", action="append", default=[], metavar="PATTERN", help="only these steps")
    parser.add_argument("--slurm", action="store_true", help="on a real Slurm of eight hosts")
    args = parser.parse_args()
    run = job_of_slurm if args.slurm else job
    for noise in args.noise:
        rows = []
        for seed in range(1, args.seeds + 1):
            model = Model(seed=seed, noise=noise, spread=args.spread, lacking={BAD: {"0": 0.75}})
            rows.append(row(model, args.step, run))
            print(json.dumps(rows[-1]), flush=True)
        right, blamed = sum(r["right"] for r in rows), sum(r["others"].get("fail", 0) for r in rows)
        print(f"noise {noise:.0%}: {right} of {len(rows)} right, {blamed} good hosts fail", flush=True)


if __name__ == "__main__":
    main()
