# SPDX-License-Identifier: Apache-2.0
"""``firsttouch characterize``: all checks on this host through ReFrame, and their report (thesis figure 3.8)."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import errno
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from firsttouch import paths
from firsttouch.benchmarks import profiles, reframe_run
from firsttouch.cli import options
from firsttouch.datasets import fetch
from firsttouch.errors import BadInput, Missing, RunFailed
from firsttouch.execution import backends, host_lock
from firsttouch.execution.progress import say
from firsttouch.host import topology
from firsttouch.records import atomic_files, schema
from firsttouch.systems import draft
from firsttouch.systems.definition import available, load, mismatch

Say = Callable[[str], None]


def characterize(
    system: str,
    out: Path,
    *,
    dataset: str,
    programs: str = "",
    image: str = "",
    options: Sequence[str] = (),
    say: Say = print,
) -> tuple[Path, str, bool]:
    """Run all checks on *system* and write a report into a new folder of *out*.

    *programs* is the backend (empty: the partition's) and *image* its image or view. *options* are passed to
    ReFrame. Returns the report's folder, its summary as a table, and whether all checks passed or were skipped. An
    incomplete report is removed.
    """
    out.mkdir(parents=True, exist_ok=True)
    chosen = ["-S", f"dataset={dataset}"]
    if programs:
        backends.prepared(programs, image, ["--version"])  # reports unmet requirements before anything runs
        chosen += ["-S", f"backend={programs}", *(["-S", f"image={image}"] if image else [])]
    prepare(system, dataset, say)
    # If a scheduler chooses the host, each check holds that one, and this host need not be held.
    here = all(partition.scheduler == "local" for partition in load(system).partitions)
    holding = host_lock.measuring(say) if here else contextlib.nullcontext()
    with holding, host_lock.no_process_left():
        if here:
            atomic_files.clear(out)  # left by a killed run, because only this process measures now
        name = datetime.datetime.now().astimezone().strftime("%Y-%m-%dT%H-%M-%S")
        try:
            with atomic_files.scratch(out / name) as partial:
                table, passed = _measure(system, partial, [*options, *chosen], say)
                final = _free(out / name)
                partial.rename(final)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise Missing(f"{out}: its disk is full: nothing of this run was kept") from error
    _point(out / "latest", final.name, say)
    return final, table, passed


def prepare(system: str, dataset: str, say: Say) -> None:
    """Draft the local system if it has no file yet, and fetch the dataset.

    Raises BadInput if this host does not match *system*.
    """
    if system == paths.LOCAL and available()[system] is None:
        file = paths.drafts() / f"{system}.yaml"
        say(f"drafting {file} from this host")
        file.parent.mkdir(parents=True, exist_ok=True)
        atomic_files.write(file, draft.of_this_host(system))
    described = load(system)
    if difference := mismatch(described, topology.of_this_host()):
        again = ": draft it anew with `firsttouch system draft local --force`" if system == paths.LOCAL else ""
        raise BadInput(difference + again, file=described.path)
    fetch.get(dataset)


def _measure(system: str, folder: Path, options: Sequence[str], say: Say) -> tuple[str, bool]:
    from firsttouch.report import model, pages  # noqa: PLC0415 - loads the plotting library

    say(f"measuring {system} with ReFrame")
    troubles = reframe_run.run(paths.CHECKS, system, folder / "reframe", options=options, say=say)
    records = schema.collect([folder / "reframe" / "output", folder / "reframe" / "stage"])
    if not records:
        reasons = "; ".join(f"{t.check}: {t.reason}" for t in troubles[:3])
        raise RunFailed(f"no check gave a record: {reasons or 'no check was run'}")
    problems = [model.Problem(t.check, t.result, t.reason, check=t.word) for t in troubles]
    problems += [model.Problem(name, "skipped", why, check="") for name, why in limits(records).items()]

    xml = topology.probe_xml()
    references = model.references_of(load(system))
    summary = pages.build(records, folder, topology_xml=xml, problems=problems, references=references)
    passed = not any(t.result == "failed" for t in troubles)
    if passed:  # the folders of failed checks hold what their programs printed
        shutil.rmtree(folder / "reframe" / "stage", ignore_errors=True)
    return summary.table(), passed


def limits(records: Sequence[schema.Record]) -> dict[str, str]:
    """Return the limits of these records that a report must show, by topic."""
    why = {}
    if emulators := {r.software["emulator"] for r in records if "emulator" in r.software}:
        why["judgement"] = f"the host is emulated ({', '.join(sorted(emulators))}): its speed is meaningless"
    if (thorough := profiles.chosen()).name != profiles.FULL:
        why["thoroughness"] = f"effort {thorough.name}: {thorough.title}"
    return why


def _free(folder: Path) -> Path:
    """Return *folder*, or a free name beside it (two runs within a second)."""
    number = 1
    free = folder
    while free.exists():
        number += 1
        free = folder.with_name(f"{folder.name}-{number}")
    return free


def _point(link: Path, target: str, say: Say) -> None:
    """Point *link* at *target* atomically; a folder or file of its name is left alone."""
    if link.exists() and not link.is_symlink():
        say(f"{link} is left alone: it is not a link; the newest report is {target}")
        return
    with atomic_files.replacing(link) as partial:
        partial.symlink_to(target)


EXAMPLES = """\
  firsttouch characterize
  firsttouch characterize --system local --dataset synthetic
  firsttouch characterize --aligner all
  firsttouch characterize --backend apptainer            (the programs of containers/firsttouch.sif)
  firsttouch characterize -- -n latency -n bandwidth      (options after -- are ReFrame's)"""


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    parser = options.command(subparsers, "characterize", EXAMPLES)
    options.add(parser, "--system", default=paths.LOCAL)
    dataset = profiles.default_dataset()
    options.add(parser, "--dataset", default=dataset, help=f"the aligners' dataset (default: {dataset})")
    options.add(
        parser,
        "--aligner",
        action="append",
        help=f"run this aligner's scenarios, or those of 'all'; may be repeated (default: "
        f"${profiles.ALIGNERS_VARIABLE} or {profiles.default_aligner()})",
    )
    options.add(parser, "--backend", choices=backends.NAMES)
    options.add(parser, "--image")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="folder of reports (default: reports/out)"
    )
    parser.add_argument("reframe_options", nargs="*", metavar="OPTION", help="options for ReFrame, after --")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Characterize this host; 1 if a check failed."""
    # ReFrame and its checks are other processes.
    os.environ[profiles.ALIGNERS_VARIABLE] = _aligners(args.aligner)
    profiles.chosen()  # raises for an unknown name before anything runs
    out = args.output or paths.results()
    folder, table, passed = characterize(
        args.system,
        out,
        dataset=args.dataset,
        programs=args.backend,
        image=args.image,
        options=args.reframe_options,
        say=say,
    )
    if args.json:
        print((folder / "summary.json").read_text(encoding="utf-8"), end="")
    else:
        print(table)
        print(f"\nreport: {folder / 'index.html'}")
    return 0 if passed else 1


def _aligners(given: list[str] | None) -> str:
    return ",".join(given or ()) or os.environ.get(profiles.ALIGNERS_VARIABLE) or profiles.default_aligner()
