# SPDX-License-Identifier: Apache-2.0
"""Plans the runs of a study on this host: its configurations, with their input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from firsttouch import paths
from firsttouch.benchmarks import profiles
from firsttouch.benchmarks.studies import MATES, Case, Reads, Study
from firsttouch.campaign import campaigns
from firsttouch.campaign.campaigns import Campaign
from firsttouch.datasets import manifest
from firsttouch.errors import BadInput, Missing, none_such
from firsttouch.execution import backends, slurm
from firsttouch.execution.progress import say
from firsttouch.genomics.aligners import aligner
from firsttouch.genomics.fastq import inspect
from firsttouch.host import topology
from firsttouch.systems.definition import load


class Choice(Struct, frozen=True):
    """The runs of a study that are wanted, and their input; None and empty: all, and the study's own values."""

    dataset: str | None = None
    #: Prefixes of indexes: PREFIX for all families, or FAMILY=PREFIX.
    index: Sequence[str] = ()
    reads: Path | None = None
    reads2: Path | None = None
    threads: Sequence[int] = ()
    #: Patterns of configurations, families or "FAMILY: CONFIGURATION".
    configurations: Sequence[str] = ()
    kind_of_reads: Reads | None = None
    reads_per_thread: int | None = None

    @property
    def is_given(self) -> bool:
        """Whether it chooses anything, which a campaign that is continued must have."""
        return self != Choice()


class Planner(Struct, frozen=True):
    """Plans the *choice* of a *study* for *system*, with the programs of *backend* and its *image*.

    With *only_installed*, configurations without an installed program are left out. With *dry_run*, no file is
    made, and programs need not be installed.
    """

    study: Study
    choice: Choice
    system: str = paths.LOCAL
    backend: str = ""
    image: str = ""
    only_installed: bool = False
    dry_run: bool = False

    def plan(self, folder: Path, *, repetitions: int | None, steps: Sequence[str] = ()) -> Campaign:
        """Return the campaign of the runs; raises BadInput or Missing for what cannot work."""
        study, choice = self.study, self.choice
        kinds: tuple[Reads, ...] = (choice.kind_of_reads,) if choice.kind_of_reads else ()
        host = topology.of_this_host()
        cases, left_out = study.cases(host, threads=choice.threads, patterns=choice.configurations, reads=kinds)
        for name, reason in left_out.items():
            say(f"{name}: left out: {reason}")
        inputs, mates = self._inputs()
        if mates == 1 and any(case.reads == "paired" for case in cases):
            if choice.kind_of_reads:
                raise BadInput("--paired needs a second file of reads: --reads2, or a dataset with two files")
            say("paired reads: left out: there is one file of reads")
            cases = [case for case in cases if case.reads == "unpaired"]
        # Whether other programs than those of this host are there is seen when they run.
        if load(self.system).programs(slurm.partition(), self.backend, self.image)[0] == backends.NATIVE:
            cases = self._installed(cases)
        if not self.dry_run:
            cases = self._with_blocks(cases)
        if choice.reads_per_thread and not any(case.reads_per_thread for case in cases):
            raise BadInput(f"--reads-per-thread: the runs of study {study.name} align all reads once")
        if not cases:
            raise BadInput(f"nothing of study {study.name} can run here")
        return campaigns.of_study(
            study.name,
            cases,
            folder,
            system=self.system,
            dataset="" if choice.reads else self._dataset,
            inputs=inputs,
            repetitions=repetitions or study.repetitions,
            time_limit=study.time_limit,
            reads_per_thread=choice.reads_per_thread,
            more=["--if-installed"] if self.only_installed else [],
            only=steps,
        )

    @property
    def _dataset(self) -> str:
        return self.choice.dataset or profiles.default_dataset()

    def _installed(self, cases: Sequence[Case]) -> list[Case]:
        """Return the cases whose program is installed; raises Missing for others, unless only those are wanted."""
        missing = self.study.missing(cases)
        if missing:
            names = ", ".join(missing)
            hint = f"`firsttouch study show {self.study.name}` says what they are built from"
            if not (self.only_installed or self.dry_run):
                raise Missing(f"not installed: {names}: {hint}; --only-installed leaves them out")
            say(f"not installed{', left out' if self.only_installed else ''}: {names}: {hint}")
        return [case for case in cases if not self.only_installed or case.aligner not in missing]

    def _with_blocks(self, cases: Sequence[Case]) -> list[Case]:
        """Return the cases without those whose program reads blocks, unless the files are in its blocks."""
        reasons: dict[str, list[str]] = {}
        left: list[Case] = []
        refused: dict[tuple[object, Reads], str] = {}
        for case in cases:
            key = aligner(case.aligner).blocks, case.reads
            if key not in refused:
                refused[key] = self._no_blocks(case)
            if refused[key]:
                reasons.setdefault(refused[key], []).append(f"{case.family.name}: {case.configuration.name}")
            else:
                left.append(case)
        for reason, names in reasons.items():
            say(f"{'; '.join(dict.fromkeys(names))}: left out: {reason}")
        return left

    def _no_blocks(self, case: Case) -> str:
        """Return why the reads are not in the blocks of a case's aligner; empty if they are or need not be."""
        program = aligner(case.aligner)
        if not program.blocks:
            return ""
        if self.choice.reads is None:
            return "it reads blocks: give files in blocks with --reads"
        files = [file for file in (self.choice.reads, self.choice.reads2) if file][: MATES[case.reads]]
        try:
            inspect(files, program.batches(), say=say)
        except BadInput as error:
            return str(error)
        return ""

    def _inputs(self) -> tuple[Callable[[Case], list[str]], int]:
        """Return the function that returns the options for the input of a case, and the number of read files."""
        choice = self.choice
        if not (choice.index or choice.reads or choice.reads2):
            name = self._dataset
            files = sum(file.role == "reads" for file in manifest.load(name).files)
            if not files:
                raise BadInput(f"dataset '{name}' is a reference without reads")

            def of_dataset(case: Case) -> list[str]:
                return ["--dataset", name, *(["--unpaired"] if case.reads == "unpaired" and files > 1 else [])]

            return of_dataset, files
        if choice.dataset:
            raise BadInput("--dataset brings indexes and reads: leave --index, --reads and --reads2 out")
        if not (choice.index and choice.reads):
            raise BadInput("--index and --reads are needed (or --dataset)")
        reads, *others = [file.absolute() for file in (choice.reads, choice.reads2) if file]
        for file in (reads, *others):
            if not file.exists():
                raise BadInput("there is no such file", file=file)
        prefixes = self._prefixes()

        def of_files(case: Case) -> list[str]:
            prefix = prefixes.get(case.family.name) or prefixes.get("")
            if prefix is None:
                raise BadInput(f"--index: none for {case.family.name}: write --index '{case.family.name}=PREFIX'")
            aligner(case.aligner).index_bytes(prefix)  # raises if there is none
            reads2 = ["--reads2", str(others[0])] if case.reads == "paired" else []
            return ["--index", str(prefix), "--reads", str(reads), *reads2]

        return of_files, 1 + len(others)

    def _prefixes(self) -> dict[str, Path]:
        """Return the prefixes of indexes by family, "" for all others; raises BadInput for an unknown family."""
        families = {family.lower(): family for family in self.study.families}
        prefixes = {}
        for text in self.choice.index:
            name, separator, prefix = text.partition("=")
            if not separator or "/" in name:
                prefixes[""] = Path(text).absolute()
            elif name.lower() in families:
                prefixes[families[name.lower()]] = Path(prefix).absolute()
            else:
                raise BadInput(f"--index {text}: {none_such('family', name, self.study.families)}")
        return prefixes
