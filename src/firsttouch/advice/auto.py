# SPDX-License-Identifier: Apache-2.0
"""The scenario of ``auto`` for a user's aligner command: saved advice, else trials on the first reads.

If neither is possible, the command runs unchanged. Trials stop at their budget, a part of the whole run, so
``auto`` exceeds the plain command's time by at most this part.
"""

from __future__ import annotations

import contextlib
import functools
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

from msgspec import Struct

from firsttouch.advice import BUDGET, saved
from firsttouch.advice.costs import FASTEST, LEAST_SECONDS, candidates, default, index_banks, latency_ratio
from firsttouch.clock import SYSTEM_CLOCK, Clock
from firsttouch.errors import FirstTouchError, RunFailed
from firsttouch.genomics.command_line import UserCommand
from firsttouch.genomics.division import least_bytes
from firsttouch.genomics.launch import Work
from firsttouch.genomics.reads import PEEK, form_of
from firsttouch.host.topology import Topology
from firsttouch.records import atomic_files
from firsttouch.scenarios.memory_options import Kind, combinations, select_for_aligner, select_options
from firsttouch.scenarios.placement import Plan, Scenario
from firsttouch.tools import lean_numpy

#: Trials sample the first reads. Reading them takes at most this part of the budget, and this number of bytes.
_HEAD, _MOST_TEXT = 1 / 3, 2**30
#: They are written in pieces of about this number of bytes.
_PIECE = 2**20
#: The approximate number of bases in a byte of FASTQ text.
_TEXT_BASES = 0.45
#: The bytes of text in which bases are counted.
_SAMPLE = 2**22


class ChosenScenario(Struct, frozen=True):
    """The *scenario* to run, and in words why."""

    scenario: Scenario
    reason: str


class Auto(Struct, frozen=True, dict=True):
    """The input for choosing the scenario of a user's *command* among the *planned* ones on *host*.

    Trials also try the memory options *options* (``none``, ``all`` or a list), which *planned* does not include.
    *budget* is the part of the whole run that trials may take (0: none), *scratch* the folder for the reads of
    trials (None: TMPDIR), *clock* measures the budget. Raises BadInput if *planned* has no scenario without a
    policy.
    """

    command: UserCommand
    host: Topology
    planned: Plan
    budget: float = BUDGET
    scratch: Path | None = None
    options: str = "none"
    say: Callable[[str], None] = print
    clock: Clock = SYSTEM_CLOCK

    def __post_init__(self) -> None:
        """Check that *planned* has the scenario of the unchanged command."""
        default(self.planned.scenarios)

    def choose(self) -> ChosenScenario:
        """Return the scenario of saved advice, else of trials (which are saved), else of the unchanged command."""
        usual = self.planned.scenarios[default(self.planned.scenarios)]
        try:
            if choice := self._saved():
                return choice
            if self.command.whole:
                raise _AsItIs(self.command.whole)
            return self._tried()
        except (FirstTouchError, OSError) as error:
            return ChosenScenario(usual, f"your command as it is: {error}")

    def _saved(self) -> ChosenScenario | None:
        advice = saved.lookup(self.key, self.say)
        if advice is None:
            return None
        saying = f"the advice of {advice.time[:10]} for {self.command.aligner.name}"
        try:
            pick = self.planned.single_instance if self.command.whole else self.planned.scenario
            scenario = pick(advice.scenario)
        except FirstTouchError as error:
            self.say(f"{saying} does not fit this host now: {error}")
            return None
        if reason := advice.outgrown(self._bases):
            self.say(f"{saying} is not followed: {reason}")
            return None
        self._check_batches(scenario)
        if left_out := set(scenario.options).difference(select_options(self.options, get_args(Kind))):
            names = " and ".join(sorted(left_out))
            self.say(f"{saying} is not followed: --options leaves out {names}")
            return None
        return ChosenScenario(scenario, f"as advised on {advice.time[:10]}")

    @functools.cached_property
    def _offered(self) -> tuple[Plan, dict[str, str]]:
        """The plan with the memory options that this host supports, and the reasons against the others."""
        sets, refused = combinations(select_for_aligner(self.options), self.command.words[0])
        return self.planned.with_each(sets), refused

    def _tried(self) -> ChosenScenario:
        if len(self._offered[0].scenarios) == 1:
            raise _AsItIs("there is no other scenario on this host")
        if not self.budget:
            raise _AsItIs("there is no advice for it, and no budget for trials")
        # The whole run may be too short for any trial, or its files can be read only once.
        self._files()
        least = LEAST_SECONDS * FASTEST * self.command.threads / self.budget
        if self._bases is not None and self._bases < least:
            raise self._too_few(f"{least / 1e6:,.0f} million bases")
        document = self.advise()
        recommended = self.planned.scenario(document["recommended"])
        self._check_batches(recommended)
        if not document["predicted_s"]:
            raise self._too_few(f"{document['least_reads']:,} reads")
        gain = document["gain"] if document["clear"] else None
        times = f", {gain['expected']:.2f} times as fast as without" if gain else ""
        trials = sum(row["trials"] for row in document["scenarios"])
        return ChosenScenario(
            recommended, f"after {trials} trials in {document['budget']['spent_s']:.1f} s{times}"
        )

    @functools.cached_property
    def _bases(self) -> float | None:
        """About how many bases the reads have; None if a file can be read only once or not at all."""
        try:
            return sum(_about_bases(Path(name)) for name in self._files())
        except (_AsItIs, OSError, EOFError, zlib.error):
            return None

    def _check_batches(self, scenario: Scenario) -> None:
        """Raise if instances of *scenario* would get no reads, because these are too few."""
        least = max(self.command.batch.bases, _TEXT_BASES * least_bytes(self.command.batch))
        if self._bases is not None and scenario.instances > 1 and self._bases < scenario.instances * least:
            raise _AsItIs(
                f"{scenario.name} is advised, but about {self._bases / 1e6:.3g} million bases are too few for its "
                f"{scenario.instances} instances: each takes {least / 1e6:.3g} million at a time"
            )

    def _too_few(self, least: str) -> FirstTouchError:
        return _AsItIs(
            f"too few reads for trials that take {self.budget:.1%} of the run: at least {least} are needed"
        )

    def _files(self) -> list[str]:
        """Return the names of the read files; raises if one can be read only once."""
        names = [name for lane in self.command.lanes for name in lane]
        for name in names:
            if name != "-" and not Path(name).exists():
                raise _AsItIs(f"there is no file {name}")
            if name == "-" or not Path(name).is_file():
                raise _AsItIs(
                    f"there is no advice for it, and {name} can be read only once, so there can be no trials "
                    "(`firsttouch advise --` with files of such reads saves advice)"
                )
        return names

    @property
    def key(self) -> saved.Key:
        """The key of the command for saved advice; raises BadInput or Missing without its index or program.

        A command that cannot be divided is treated as any program.
        """
        total = max(s.instances * s.threads for s in self.planned.scenarios)
        if self.command.whole:
            return saved.program_key(self.host, self.command.words, total)
        return saved.command_key(self.host, self.command, total)

    def advise(self, say: Callable[[str], None] = lambda _: None, *, strict: bool = True) -> dict[str, Any]:
        """Try the scenarios on the first reads within the budget, save the advice, and return its document.

        *say* gets the messages of the trials. Unless *strict*, the trials that determine the length of the whole
        run may exceed the budget of a short run. Raises BadInput or RunFailed if there can be no trials.
        """
        began = self.clock.monotonic()
        with lean_numpy():
            from firsttouch.advice import advice_text, trials  # noqa: PLC0415 - they load NumPy
            from firsttouch.advice.posterior import prior  # noqa: PLC0415
            from firsttouch.genomics import fastq  # noqa: PLC0415

        planned, refused = self._offered
        key, scenarios = self.key, planned.scenarios
        usual, index = default(scenarios), self.command.index
        assert index is not None  # noqa: S101 - for mypy: the key has it
        size = self.command.aligner.index_bytes(index)
        expected = prior(candidates(scenarios), index_banks(self.host, size), latency_ratio(self.host))
        with atomic_files.workspace(self.scratch or Path(tempfile.gettempdir())) as folder:
            files, part = self._first_reads(folder)
            reads = fastq.inspect(files, self.command.batch)
            work = Work(self.command.aligner, index, reads, command=self.command)
            head = trials.Head(part, began, strict)
            advice = trials.advise(
                work,
                scenarios,
                expected,
                self.budget,
                default=usual,
                say=say,
                head=head,
                scratch=folder,
                clock=self.clock,
            )
        document = advice_text.document(advice, usual, planned.infeasible, refused)
        words = {"aligner": self.command.aligner.name, "command": list(self.command.words), "dataset": None}
        document = {**advice_text.header(), **words, "head": part, **document}
        if advice.belief is not None and advice.compared:
            gain = document["gain"] if document["clear"] else None
            saved.save(key, document["recommended"], gain, document, self.say)
        return document

    def _first_reads(self, folder: Path) -> tuple[list[Path], float]:
        """Write the first reads as FASTQ into *folder*; return the files by mate, and the part of all reads."""
        self._files()
        from firsttouch.genomics.read_stream import ReadStream  # noqa: PLC0415 - it loads NumPy

        names = [folder / f"head-{mate}.fq" for mate in range(1, 1 + self.command.mates)]
        size, records = 0, 0
        with contextlib.ExitStack() as stack:
            outs = [stack.enter_context(name.open("wb")) for name in names]
            stream = stack.enter_context(
                ReadStream(
                    self.command.lanes,
                    interleaved=self.command.interleaved,
                    least_part_bytes=_PIECE,
                    any_names=self.command.aligner.align.any_names,
                )
            )
            for piece in stream:
                for text, out in zip(piece.data, outs, strict=True):
                    size += out.write(text)
                records += piece.records
                if size >= _MOST_TEXT or (stream.progress.fraction or 0) >= self.budget * _HEAD:
                    break
            done = stream.progress
        if done.fraction is None or not done.records:
            raise _AsItIs("there is no advice for it, and the number of its reads is unknown")
        return names, min(1.0, done.fraction * records / done.records)


def _about_bases(file: Path) -> float:
    """Return about how many bases a file has, if each of its bytes has as many as those at its beginning."""
    from gzip import GzipFile  # noqa: PLC0415 - it takes 2 ms

    with file.open("rb") as packed:
        if (form := form_of(packed.peek(PEEK))) not in {"plain", "gzip"}:
            raise _AsItIs(f"{file} is {form}")
        text = (GzipFile(fileobj=packed) if form == "gzip" else packed).read(_SAMPLE)
        return file.stat().st_size * sum(map(len, text.split(b"\n")[1::4])) / max(1, packed.tell())


class _AsItIs(RunFailed):
    """The reason why a command runs unchanged."""
