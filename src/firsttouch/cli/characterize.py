# SPDX-License-Identifier: Apache-2.0
"""``firsttouch characterize``: all checks on this host through ReFrame, and their report (thesis figure 3.8)."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import errno
import itertools
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from firsttouch import paths
from firsttouch.benchmarks import drawn_order, kernel_settings, measure, profiles, reframe_run
from firsttouch.cli import options
from firsttouch.datasets import fetch
from firsttouch.errors import BadInput, Missing, RunFailed, first_of
from firsttouch.execution import backends, host_lock, progress
from firsttouch.execution.progress import say
from firsttouch.host import topology
from firsttouch.records import atomic_files, schema
from firsttouch.systems import draft
from firsttouch.systems.definition import available, load, mismatch
from firsttouch.tools import require_report

#: The most checks that a warning names.
_NAMED = 3
EXAMPLES = """\
  firsttouch characterize
  firsttouch characterize --system local --dataset synthetic
  firsttouch characterize --aligner all
  firsttouch characterize --backend apptainer            (the programs of containers/firsttouch.sif)
  firsttouch characterize -- -n latency -n bandwidth      (options after -- are ReFrame's)"""


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    parser = options.command(subparsers, "characterize", run, EXAMPLES)
    options.add(parser, "--system", default=paths.LOCAL)
    dataset = profiles.default("dataset")
    options.add(parser, "--dataset", default=dataset, help=f"the aligners' dataset (default: {dataset})")
    options.add(
        parser,
        "--aligner",
        action="append",
        help="run this aligner's scenarios, or all aligners' with 'all'; may be repeated (default: "
        f"${profiles.ALIGNERS_VARIABLE} or {profiles.default('aligner')})",
    )
    options.add(parser, "--backend", choices=backends.NAMES)
    options.add(parser, "--image")
    options.add(parser, "--seed")
    options.add(parser, "--output", metavar="DIR", help="folder of reports (default: reports/out)")
    parser.add_argument("-q", "--quiet", action="store_true", help="print the report's path only")
    parser.add_argument("reframe_options", nargs="*", metavar="OPTION", help="options for ReFrame, after --")


def run(args: argparse.Namespace) -> int:
    """Run all checks and write a report into a new folder; return 1 if a check failed."""
    require_report()
    if args.quiet:
        progress.quiet()
    # ReFrame and its checks are other processes.
    aligners = ",".join(args.aligner or ()) or os.environ.get(profiles.ALIGNERS_VARIABLE)
    os.environ[profiles.ALIGNERS_VARIABLE] = aligners or profiles.default("aligner")
    profiles.chosen_effort()  # raises for an unknown name before anything runs
    drawn_order.seed(args.seed)
    out: Path = args.output or paths.results()
    out.mkdir(parents=True, exist_ok=True)
    chosen = ["-S", f"dataset={args.dataset}"]
    if args.backend:
        backends.start_with(
            args.backend, args.image, ["--version"]
        )  # reports unmet requirements before anything runs
        chosen += ["-S", f"backend={args.backend}", *(["-S", f"image={args.image}"] if args.image else [])]
    prepare(args.system, args.dataset)
    # If a scheduler chooses the host, each check holds that host instead of this one.
    here = all(partition.scheduler == "local" for partition in load(args.system).partitions)
    holding = host_lock.hold_host(say) if here else contextlib.nullcontext()
    with holding, host_lock.no_process_left():
        if here:
            atomic_files.clear(out)  # left by a killed run, because only this process measures now
        name = datetime.datetime.now().astimezone().strftime("%Y-%m-%dT%H-%M-%S")
        try:
            with atomic_files.scratch(out / name) as partial:
                table, passed = _measure(args.system, partial, [*args.reframe_options, *chosen])
                final = _free(out / name)
                partial.rename(final)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise Missing(f"{out}: its disk is full: nothing of this run was kept") from error
    _point(out / "latest", final.name)
    if args.json:
        print((final / "summary.json").read_text(encoding="utf-8"), end="")
    else:
        print(f"{'' if args.quiet else table + chr(10) * 2}report: {final / 'index.html'}")
    return 0 if passed else 1


def prepare(system: str, dataset: str) -> None:
    """Draft the local system if it has no file yet, and fetch the dataset.

    Raises BadInput if this host does not match *system*.
    """
    if system == paths.LOCAL and available()[system] is None:
        file = paths.drafts() / f"{system}.yaml"
        say(f"drafting {file} from this host")
        atomic_files.write(file, draft.draft_host(system), creates=True)
    described = load(system)
    if difference := mismatch(described, topology.read_host()):
        again = ": draft it again with `firsttouch system draft local --force`" if system == paths.LOCAL else ""
        raise BadInput(difference + again, file=described.path)
    fetch.get(dataset)


def _measure(system: str, folder: Path, options: Sequence[str]) -> tuple[str, bool]:
    from firsttouch.judge.judging import judge  # noqa: PLC0415 - large imports
    from firsttouch.report import model, pages  # noqa: PLC0415

    say(f"measuring {system} with ReFrame")
    before = kernel_settings.usage()
    troubles, warnings = reframe_run.run(paths.CHECKS, system, folder / "reframe", options=options, say=say)
    records = schema.collect([folder / "reframe" / "output", folder / "reframe" / "stage"])
    if not records:
        reasons = "; ".join(f"{t.check}: {t.reason}" for t in troubles[:3])
        raise RunFailed(f"no check wrote a record: {reasons or 'no check was run'}")
    of_host = [replace(r, system=system) for r in kernel_settings.records(since=before)]
    if {r.host for r in records} == {r.host for r in of_host}:
        schema.append(folder / "reframe" / "output" / "records.jsonl", of_host)
        records += of_host
    problems = [model.Problem(t.check, t.result, t.reason, check=t.word) for t in troubles]
    # The report warns by all values if the host was not idle.
    problems += [
        model.Problem(first_of(checks, _NAMED), "skipped", text, "")
        for text, checks in warnings.items()
        if text != measure.BUSY
    ]
    problems += [model.Problem(name, "skipped", why, check="") for name, why in limits(records).items()]

    xml = topology.probe_xml()
    described = load(system)
    verdicts = judge(records, described)
    summary = pages.build(
        records,
        folder,
        topology_xml=xml,
        problems=problems,
        references=model.references_of(described),
        verdicts=verdicts if described.references else (),
        alone=() if described.references else verdicts,
    )
    passed = not any(t.result == "failed" for t in troubles)
    if passed:  # the folders of failed checks contain the output of their programs
        shutil.rmtree(folder / "reframe" / "stage", ignore_errors=True)
    return summary.table(), passed


def limits(records: Sequence[schema.Record]) -> dict[str, str]:
    """Return the limits of these records that a report must show, by topic."""
    why = {}
    if emulators := {r.software["emulator"] for r in records if "emulator" in r.software}:
        why["judgement"] = f"the host is emulated ({', '.join(sorted(emulators))}): its speed is meaningless"
    if (thorough := profiles.chosen_effort()).name != profiles.FULL:
        why["thoroughness"] = f"effort {thorough.name}: {thorough.title}"
    return why


def _free(folder: Path) -> Path:
    """Return *folder*, or a free name next to it if two runs start in the same second."""
    others = (folder.with_name(f"{folder.name}-{number}") for number in itertools.count(2))
    return next(free for free in itertools.chain([folder], others) if not free.exists())


def _point(link: Path, target: str) -> None:
    """Point *link* at *target* atomically, unless it is a folder or a file."""
    if link.exists() and not link.is_symlink():
        say(f"{link} is left alone: it is not a link; the newest report is {target}")
        return
    with atomic_files.replace(link) as partial:
        partial.symlink_to(target)
