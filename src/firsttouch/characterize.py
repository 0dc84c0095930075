# SPDX-License-Identifier: Apache-2.0
"""The main job: all checks on this host, from the dataset to the report (thesis chapter 3, figure 3.8)."""

from __future__ import annotations

import contextlib
import datetime
import errno
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from firsttouch import backend, beside, datasets, exclusive, folders, records, reframe_run, topology
from firsttouch.errors import BadInput, Missing, RunFailed
from firsttouch.measure import effort
from firsttouch.systems import draft, load, mismatch

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

    *programs* is the backend that they come from (empty: what the partition says) and *image* its image or view;
    *options* are passed on to ReFrame. Returns the report's folder, its summary as a table, and whether all
    checks passed (skipped ones aside). Nothing half-written stays, whatever happens.
    """
    out.mkdir(parents=True, exist_ok=True)
    chosen = ["-S", f"dataset={dataset}"]
    if programs:
        backend.prepared(programs, image, ["--version"])  # says what does not fit here, before any work
        chosen += ["-S", f"backend={programs}", *(["-S", f"image={image}"] if image else [])]
    prepare(system, dataset, say)
    # Where a scheduler chooses the host, each check holds that one; this host would only keep others waiting.
    here = all(partition.scheduler == "local" for partition in load(system).partitions)
    holding = exclusive.measuring(say) if here else contextlib.nullcontext()
    with holding, exclusive.no_process_left():
        if here:
            beside.clear(out)  # a run that was killed left it: we alone are measuring now
        name = datetime.datetime.now().astimezone().strftime("%Y-%m-%dT%H-%M-%S")
        try:
            with beside.scratch(out / name) as partial:
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
    """Draft the local system where no file describes it yet, and get the dataset.

    Raises BadInput where this host is not one of *system*.
    """
    file = folders.SYSTEMS / f"{system}.yaml"
    if system == folders.LOCAL and not file.exists():
        say(f"drafting {file.relative_to(folders.ROOT)} from this host")
        beside.write(file, draft.of_this_host(system))
    found = load(system)
    if difference := mismatch(found, topology.of_this_host()):
        again = ": draft it anew with `firsttouch system draft local --force`" if system == folders.LOCAL else ""
        raise BadInput(difference + again, file=found.path)
    datasets.get(dataset)


def _measure(system: str, folder: Path, options: Sequence[str], say: Say) -> tuple[str, bool]:
    from firsttouch import report  # noqa: PLC0415  (loads the plotting library, which no other command needs)

    say(f"measuring {system} with ReFrame")
    troubles = reframe_run.run(folders.ROOT / "reframe", system, folder / "reframe", options=options, say=say)
    found = records.collect([folder / "reframe" / "output", folder / "reframe" / "stage"])
    if not found:
        reasons = "; ".join(f"{t.check}: {t.reason}" for t in troubles[:3])
        raise RunFailed(f"no check gave a record: {reasons or 'no check was run'}")
    problems = [report.Problem(t.check, t.result, t.reason, check=t.word) for t in troubles]
    described = load(system)

    problems += [report.Problem(name, "skipped", why, check="") for name, why in limits(found).items()]

    def reference(record: records.Record) -> report.Reference | None:
        if not record.judged:
            return None
        known = described.reference(record.check, record.metric, record.parameters)
        return report.Reference(known.value, known.minimum, known.maximum, known.source) if known else None

    xml = topology.lstopo_xml()
    summary = report.build(found, folder, topology_xml=xml, problems=problems, references=reference)
    passed = not any(t.result == "failed" for t in troubles)
    if passed:  # the folders of failed checks hold what their programs printed
        shutil.rmtree(folder / "reframe" / "stage", ignore_errors=True)
    return summary.table(), passed


def limits(found: Sequence[records.Record]) -> dict[str, str]:
    """Return what these records are not good for, by what is missing: it must not be overlooked in a report."""
    why = {}
    if emulators := {r.software["emulator"] for r in found if "emulator" in r.software}:
        why["judgement"] = f"the host is emulated ({', '.join(sorted(emulators))}): its speed says nothing"
    if (thorough := effort.chosen()).name != effort.FULL:
        why["thoroughness"] = f"effort {thorough.name}: {thorough.title}"
    return why


def _free(folder: Path) -> Path:
    """Return *folder*, or a name beside it that is free (two runs within a second)."""
    number = 1
    found = folder
    while found.exists():
        number += 1
        found = folder.with_name(f"{folder.name}-{number}")
    return found


def _point(link: Path, target: str, say: Say) -> None:
    """Make *link* point at *target*, at once; a folder or file in its place is left alone."""
    if link.exists() and not link.is_symlink():
        say(f"{link} is left alone: it is not a link; the newest report is {target}")
        return
    with beside.replacing(link) as partial:
        partial.symlink_to(target)
