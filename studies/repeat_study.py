# SPDX-License-Identifier: Apache-2.0
"""Repeats a study on this host, a run after the other, and shows the results beside the published ones.

    make study STUDY=scaling2018 ARGS="--dataset lambda --threads 1,2 --reads-per-thread 10000"

Each run is a `firsttouch run`, whose record is kept in a file: the same command continues with the missing runs.
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import random
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from tabulate import tabulate

from blocked_fastq import block
from firsttouch import paths
from firsttouch.benchmarks import profiles
from firsttouch.datasets import fetch
from firsttouch.errors import BadInput, FirstTouchError, Missing, none_such
from firsttouch.execution.progress import say
from firsttouch.genomics import aligners
from firsttouch.genomics.fastq import inspect
from firsttouch.host import topology
from firsttouch.records import atomic_files, schema, step_outcome
from firsttouch.records.schema import Record
from firsttouch.units import number
from paper import published_tables
from paper.published_tables import Row, Sheets
from study_files import FOLDER, MATES, Case, Reads, Study, Table, names, study

#: The aligner files of the studies, which `firsttouch` finds with this variable.
ALIGNERS, VARIABLE = FOLDER / "aligners", "FIRSTTOUCH_ALIGNERS"


def main(argv: Sequence[str] | None = None) -> int:
    """Repeat the study that the command line names; return the exit status, 1 if a run failed."""
    args = _parser().parse_args(argv)
    os.environ[VARIABLE] = ":".join(filter(None, (str(ALIGNERS), os.environ.get(VARIABLE))))
    try:
        if args.study is None:
            print(tabulate([(name, study(name).title) for name in names()], ("study", "title")))
            return 0
        return repeat(study(args.study), args)
    except FirstTouchError as error:
        print(f"repeat_study: error: {error}", file=sys.stderr)
        return error.exit_status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="repeat_study", description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("study", nargs="?", metavar="STUDY", help="its name, or a TOML file (default: list the studies)")
    add("--dataset", help=f"take indexes and reads from this dataset (default: {profiles.default('dataset')})")
    add("--index", action="append", default=[], metavar="[FAMILY=]PREFIX", help="index, of all or of a family")
    add("--reads", type=Path, metavar="FILE", help="FASTQ file, plain or gzip")
    add("--reads2", type=Path, metavar="FILE", help="the second file of a pair")
    add("--threads", type=_counts, default=[], metavar="N,N", help="thread counts (default: the study's)")
    add(
        *("--configuration", "--only"),
        action="append",
        default=[],
        metavar="PATTERN",
        help="only configurations, families or 'FAMILY: CONFIGURATION' that match; may be repeated",
    )
    kinds = parser.add_mutually_exclusive_group()
    for kind in MATES:
        kinds.add_argument(f"--{kind}", dest="kind", action="store_const", const=kind, help=f"only {kind} reads")
    add("--reads-per-thread", type=int, metavar="N", help="instead of the study's numbers")
    add("--repetitions", type=int, metavar="N", help="timed runs of each case (default: the study's)")
    add("--only-installed", action="store_true", help="leave out configurations without an installed program")
    add("-o", "--output", type=Path, metavar="DIR", help="folder of the results (default: studies/STUDY there)")
    add("--dry-run", action="store_true", help="print the commands, run none")
    return parser


def _counts(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def repeat(which: Study, args: argparse.Namespace) -> int:
    """Run the missing cases of a study and write its tables; return 1 if a run failed."""
    folder: Path = (args.output or paths.results() / "studies" / which.name).absolute()
    inputs = _Inputs.from_arguments(args, which)
    cases = _cases(which, args, inputs)
    commands = [(case, command(which, case, args, inputs, folder)) for case in cases]
    if args.dry_run:
        for _, words in commands:
            print(shlex.join(words))
        return 0
    (folder / "records").mkdir(parents=True, exist_ok=True)
    failed = 0
    for position, (case, words) in enumerate(commands, start=1):
        if not _is_done(folder, case):
            inputs.prepare(case, folder)
            outcome = _run(which, case, words, folder)
            say(f"{position}/{len(commands)} {case.name}: {outcome}")
            failed += outcome.startswith("failed")
    runs = list(read_runs(which, folder))
    sheets = published_tables.read(FOLDER / "published", [which])
    rows = compared(which, runs, sheets, topology.read_host().usable_pu_count)
    atomic_files.write(folder / "runs.csv", _csv(run.row for run in runs))
    atomic_files.write(folder / "compared.csv", _csv(rows))
    print(tabulate(_filled(rows), "keys", disable_numparse=True))
    print(f"results: {folder}")
    return 1 if failed else 0


# ----------------------------------------------------------------------
# The runs


class _Inputs(Struct, frozen=True):
    """The *dataset*, or the *indexes* by family ("": of all others) and the read *files*."""

    dataset: str
    indexes: Mapping[str, Path]
    files: tuple[Path, ...]

    @staticmethod
    def from_arguments(args: argparse.Namespace, which: Study) -> _Inputs:
        """Return the input that the command line names; raises BadInput."""
        files = tuple(file.absolute() for file in (args.reads, args.reads2) if file)
        if not (args.index or files):
            dataset = args.dataset or profiles.default("dataset")
            return _Inputs(dataset, {}, tuple(map(Path, fetch.get(dataset).reads)))
        if args.dataset:
            raise BadInput("--dataset brings indexes and reads: leave --index, --reads and --reads2 out")
        if not (args.index and args.reads):
            raise BadInput("--index and --reads are needed (or --dataset)")
        indexes = {}
        for text in args.index:
            family, separator, prefix = text.partition("=")
            if not separator or "/" in family:
                family, prefix = "", text
            elif family not in which.families:
                raise BadInput(f"--index {text}: {none_such('family', family, which.families)}")
            indexes[family] = Path(prefix).absolute()
        return _Inputs("", indexes, files)

    def options(self, case: Case, folder: Path) -> list[str]:
        """Return the options of `firsttouch run` for the index and the reads of a case."""
        if self.dataset and not case.configuration.block_bytes:
            single = case.reads == "unpaired" and len(self.files) > 1
            return ["--dataset", self.dataset, *(["--unpaired"] if single else [])]
        files = self.blocked(case, folder) if case.configuration.block_bytes else self.files
        named = zip(("--reads", "--reads2"), files[: MATES[case.reads]], strict=False)
        return [
            "--index",
            str(self.index(case)),
            *(word for option, file in named for word in (option, str(file))),
        ]

    def index(self, case: Case) -> Path:
        """Return the prefix of the index; that of a dataset is built if necessary."""
        program = aligners.aligner(case.aligner)
        if self.dataset:
            data = fetch.get(self.dataset)
            return aligners.get_index(program, data.reference, paths.data() / "index", sha256=data.sha256, say=say)
        prefix = self.indexes.get(case.family.name) or self.indexes.get("")
        if prefix is None:
            raise BadInput(f"--index: none for {case.family.name}: write --index '{case.family.name}=PREFIX'")
        program.index_bytes(prefix)  # raises if there is none
        return prefix

    def blocked(self, case: Case, folder: Path) -> list[Path]:
        """Return the files of the reads in the blocks of a case's program."""
        each = aligners.aligner(case.aligner).batch.records
        stem = f"{case.configuration.block_bytes}-{each}-{case.reads}"
        return [folder / "blocks" / f"{stem}-{mate + 1}.fq" for mate in range(MATES[case.reads])]

    def prepare(self, case: Case, folder: Path) -> None:
        """Write the reads in blocks if a case's program needs them; raises BadInput if they do not fit."""
        if not case.configuration.block_bytes or all(f.exists() for f in self.blocked(case, folder)):
            return
        outs = self.blocked(case, folder)
        outs[0].parent.mkdir(exist_ok=True)
        each = aligners.aligner(case.aligner).batch.records
        reads = inspect(self.files[: len(outs)], say=say)
        block(reads, outs, block_bytes=case.configuration.block_bytes, per_block=each, whole=True, say=say)


def _cases(which: Study, args: argparse.Namespace, inputs: _Inputs) -> list[Case]:
    """Return the cases in the order of their runs; raises BadInput or Missing for what cannot run here.

    Cases that are compared with each other follow one another, in an order that is drawn: a drift of the host
    favours none of them.
    """
    kinds: tuple[Reads, ...] = (args.kind,) if args.kind else ()
    host = topology.read_host()
    cases, left_out = which.cases(host, threads=args.threads, patterns=args.configuration, reads=kinds)
    if len(inputs.files) == 1:
        if args.kind == "paired":
            raise BadInput("--paired needs a second file of reads: --reads2, or a dataset with two files")
        cases = [case for case in cases if case.reads == "unpaired"]
    missing = _missing(cases)
    for name, reason in {**left_out, **missing}.items():
        say(f"{name}: {reason}")
    if missing and not (args.only_installed or args.dry_run):
        raise Missing(f"not installed: {', '.join(missing)}; --only-installed leaves them out")
    cases = [case for case in cases if case.aligner not in missing]
    if args.reads_per_thread and not any(case.reads_per_thread for case in cases):
        raise BadInput(f"--reads-per-thread: the runs of study {which.name} align all reads once")
    if not cases:
        raise BadInput(f"nothing of study {which.name} can run here")
    drawn = random.sample(cases, len(cases))
    blocks = {key: place for place, key in enumerate(dict.fromkeys(case.block for case in cases))}
    return sorted(drawn, key=lambda case: blocks[case.block])


def _missing(cases: Sequence[Case]) -> dict[str, str]:
    """Return the aligners of *cases* whose program is not installed, each with what the study built it from."""
    reasons = {}
    for case in {case.aligner: case for case in reversed(cases)}.values():
        try:
            aligners.aligner(case.aligner).version()
        except Missing as error:
            family, configuration = case.family, case.configuration
            source = (family.source, family.tags.get(configuration.build, ""), *configuration.macros)
            reasons[case.aligner] = f"{error}. The study built it from {' '.join(filter(None, source))}"
    return reasons


def command(which: Study, case: Case, args: argparse.Namespace, inputs: _Inputs, folder: Path) -> list[str]:
    """Return the command of a case."""
    words = ["firsttouch", "run", case.scenario, "--aligner", case.aligner, *inputs.options(case, folder)]
    if case.reads_per_thread:
        words += ["--reads-per-thread", str(args.reads_per_thread or case.reads_per_thread)]
    elif not inputs.dataset:
        words += ["--output", os.devnull]
    words += ["--repetitions", str(args.repetitions or which.repetitions)]
    words += ["--index-cache", profiles.index_cache(), "--records", str(_records(folder, case))]
    if which.time_limit is not None:
        words += ["--timeout", f"{which.time_limit:g}"]
    return [*words, *(["--", *case.options] if case.options else [])]


def _records(folder: Path, case: Case) -> Path:
    return folder / "records" / f"{case.name}.jsonl"


def _omitted(folder: Path, case: Case) -> Path:
    return folder / "records" / f"{case.name}.omitted"


def _is_done(folder: Path, case: Case) -> bool:
    return _records(folder, case).exists() or _omitted(folder, case).exists()


def _run(which: Study, case: Case, words: Sequence[str], folder: Path) -> str:
    """Run a command; return how it ended. One that took longer than the study's limit is omitted, as there."""
    outcome = folder / "outcome.json"
    outcome.unlink(missing_ok=True)
    began = time.monotonic()
    argv = [sys.executable, "-m", *words]
    environment = {**os.environ, step_outcome.VARIABLE: str(outcome)}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    records = _records(folder, case)
    last = next(iter(reversed(done.stderr.splitlines())), "")
    ended = step_outcome.read(outcome, done.returncode, has_records=records.exists(), last_words=last)
    if not records.exists() and which.time_limit and time.monotonic() - began >= which.time_limit:
        _omitted(folder, case).write_text(f"{ended.reason}\n")
        return f"omitted: {ended.reason}"
    return f"{ended.word}{': ' if ended.reason else ''}{ended.reason}"


# ----------------------------------------------------------------------
# The results


class Run(Struct, frozen=True):
    """The *record* of a case."""

    case: Case
    record: Record

    @property
    def value(self) -> float:
        """Its time, or its throughput, in which the studies count pairs once."""
        return self.record.value / self._mates

    @property
    def _mates(self) -> int:
        return MATES[self.case.reads] if self.case.reads_per_thread else 1

    @property
    def row(self) -> dict[str, object]:
        """The line of the table of all runs."""
        case, samples = self.case, self.record.samples
        low, high = (end(samples) / self._mates for end in (min, max))
        return {
            "family": case.family.name,
            "configuration": case.configuration.name,
            "reads": case.reads,
            "threads": case.threads,
            "scenario": case.scenario,
            "aligner": case.aligner,
            "value": self.value,
            "low": low,
            "high": high,
            "unit": self.record.unit,
            "repetitions": len(samples),
            "status": self.record.status,
        }


def read_runs(which: Study, folder: Path) -> Iterable[Run]:
    """Yield the valid runs in *folder* of the cases of a study on this host."""
    pus = topology.read_host().usable_pu_count
    for family, configuration in which.pairs():
        for kind in which.reads:
            for threads in range(1, pus + 1):
                scenario = configuration.scenario_of(threads, pus)
                case = Case(family, configuration, kind, threads, scenario or "")
                if scenario and (file := _records(folder, case)).exists():
                    wanted = ("throughput", "alignment_time")
                    records = [r for r in schema.read(file) if r.metric in wanted and r.status == "valid"]
                    if records:
                        yield Run(case, records[-1])


def compared(which: Study, runs: Sequence[Run], sheets: Sheets, pus: int) -> list[dict[str, object]]:
    """Return a row for each run of each table, with the published values in a column for each place.

    Of runs with the same reads per thread only the peak is shown, as in the publication.
    """
    rows: list[dict[str, object]] = []
    for table in which.tables.values():
        if table.planned:
            continue
        published = published_tables.rows_of(table, sheets) if table.sheet else []
        for run in _of_table(table, runs):
            case = run.case
            row: dict[str, object] = {"table": table.name, "family": case.family.name}
            row |= {"configuration": case.configuration.name, "reads": case.reads, "threads": case.threads}
            row["here"] = f"{number(run.value)} {run.record.unit}"
            for cells in published:
                if _is_same(which, case, cells, pus):
                    sheet = sheets.specs[table.sheet]
                    place = [str(cells[c]) for c in ("system", "dataset") if c in cells]
                    row[" ".join(place)] = (
                        f"{published_tables.printed(cells[sheet.value])} ({cells[sheet.threads]} threads)"
                    )
            rows.append(row)
    return rows


def _of_table(table: Table, runs: Sequence[Run]) -> Iterable[Run]:
    peaks: dict[tuple[str, ...], Run] = {}
    for run in runs:
        case = run.case
        if case.family.name not in table.families or case.configuration.name not in table.configurations:
            continue
        share = "" if case.reads_per_thread else str(case.threads)
        key = (case.family.name, case.configuration.name, case.reads, share)
        if key not in peaks or run.value > peaks[key].value:
            peaks[key] = run
    return peaks.values()


def _is_same(which: Study, case: Case, cells: Row, pus: int) -> bool:
    """Return whether a published row is of a case: of the same share of a system's threads, or a peak."""
    if (cells["aligner"], cells["configuration"]) != (case.family.published, case.configuration.name):
        return False
    if "reads" in cells:
        return bool(cells["reads"] == case.reads)
    return bool(cells["threads"] * pus == case.threads * which.systems[cells["system"]][1])


def _filled(rows: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    heads = dict.fromkeys(head for row in rows for head in row)
    return [{head: row.get(head, "") for head in heads} for row in rows]


def _csv(rows: Iterable[Mapping[str, object]]) -> str:
    text, filled = io.StringIO(), _filled(list(rows))
    writer = csv.DictWriter(text, [*filled[0]] if filled else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(filled)
    return text.getvalue()


if __name__ == "__main__":
    sys.exit(main())
