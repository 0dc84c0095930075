# SPDX-License-Identifier: Apache-2.0
"""Studies as data: one TOML file each says which configurations of which aligners run with how many threads.

:func:`study` reads a file, and :meth:`Study.cases` plans its runs for a host. Tables and figures name the
configurations that are compared, and where their published values are.
"""

from __future__ import annotations

import fnmatch
import functools
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from firsttouch import documents
from firsttouch.errors import BadInput, CannotHere, none_such
from firsttouch.host.topology import Topology
from firsttouch.scenarios.placement import ScenarioName, parse_name, plan

#: The folder of the studies.
FOLDER = Path(__file__).parent

Reads = Literal["unpaired", "paired"]
#: Kind of reads -> how many files the aligner gets.
MATES: Mapping[Reads, int] = {"unpaired": 1, "paired": 2}


def slug(name: str) -> str:
    """Return a *name* as a part of a file's name: ``O-parsing, TBB spin`` as ``o-parsing-tbb-spin``."""
    return re.sub(r"[^a-z0-9+]+", "-", name.lower()).strip("-")


class Family(documents.FileTable, frozen=True):
    """An aligner in several configurations, which the tables call *name*."""

    #: A template with ``{variant}``.
    aligner: str
    name: str = ""
    #: Its name in the published tables (empty: *name*).
    published: str = ""
    #: A figure draws it in the panel of this family.
    beside: str = ""
    #: The configuration that the aligner has unless a user asks for another.
    default: str = ""
    #: The aligner's own options.
    options: tuple[str, ...] = ()
    #: Reads, or pairs if paired; empty: a run aligns the reads once.
    reads_per_thread: Mapping[Reads, int] = field(default_factory=dict)
    #: Where its source is, and the version for each build.
    source: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)


class Configuration(documents.FileTable, frozen=True):
    """What is compared with others, such as a lock type under a scenario, for the aligners of some *families*."""

    name: str
    families: tuple[str, ...]
    #: A template: ``{threads}`` are the threads of one process, ``{processes}`` is the number of processes of
    #: ``{each}`` threads. One without placeholders runs with all PUs only.
    scenario: str
    variant: str = ""
    threads_each: int = 0
    options: tuple[str, ...] = ()
    #: The program reads blocks of this many bytes (0: it does not).
    block_bytes: int = 0
    #: The tag of a family's source, and the compiler's macros.
    build: str = ""
    macros: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether it runs with all PUs only."""
        return not _fields(self.scenario)

    def has(self, name: ScenarioName, instances: int) -> bool:
        """Return whether a scenario's name is one of the template."""
        wanted = parse_name(self.scenario.format(threads=1, each=1, processes=1))
        if wanted is None or (wanted.policy.name, wanted.options) != (name.policy.name, name.options):
            return False
        return "processes" in _fields(self.scenario) or wanted.instances == instances

    def scenario_of(self, threads: int, pus: int) -> str | None:
        """Return the scenario with *threads* in total on a host with *pus* PUs, None if there is none.

        A host with too few PUs for two processes of *threads_each* has two with half of its PUs each.
        """
        if self.whole:
            return self.scenario if threads == pus else None
        each = min(self.threads_each, max(1, pus // 2)) or threads
        if threads % each:
            return None
        return self.scenario.format(threads=threads, each=each, processes=threads // each)


#: The columns of published values that follow from instances, threads per instance and policy.
OF_SCENARIO = ("scenario", "threads", "shape", "configuration")


class Sheet(documents.FileTable, frozen=True):
    """A *file* of published values (CSV) and its columns with *text* and with *numbers*."""

    file: str
    text: tuple[str, ...]
    numbers: tuple[str, ...]
    #: The column of the result, in *unit* and with *axis* as its name in figures.
    value: str
    #: The place of a row in the publication, as a template of columns.
    label: str
    #: The column of the result's error in percent.
    error: str = ""
    threads: str = "threads"
    unit: str = ""
    axis: str = ""
    #: The sentence on how the values were measured.
    measured: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns, with those that follow from the others."""
        columns = (*self.text, *self.numbers)
        of_runs = {"instances", "threads_per_instance", "policy"} <= set(columns)
        return (*columns, *OF_SCENARIO) if of_runs else columns


class ValueCell(documents.FileTable, frozen=True):
    """The heading, column and format of a value; without a format, it has two decimals or more."""

    head: str
    column: str
    format: str = ""


class Layout(documents.FileTable, frozen=True):
    """How a table shows rows of a sheet: columns of the sheet in *rows*, by heading, and above the *columns*.

    There is a table for each value of the column *each*. The two highest values of the column *best* are marked.
    """

    rows: Mapping[str, str]
    columns: tuple[str, ...]
    cells: tuple[ValueCell, ...]
    each: str = ""
    best: str = ""


class Published(documents.FileTable, frozen=True):
    """The rows of *sheet* with the cells in *select*, shown as *layout* says."""

    sheet: str
    layout: str = ""
    select: Mapping[str, str] = field(default_factory=dict)


class Table(documents.FileTable, frozen=True):
    """A table: the *configurations* of *families* that it compares (empty: all), and the *published* values."""

    name: str
    title: str
    families: tuple[str, ...] = ()
    configurations: tuple[str, ...] = ()
    #: Its number in the article, and in the thesis.
    number: str = ""
    thesis: str = ""
    #: A sentence below it.
    note: str = ""
    #: The sheet of the indexes' sizes: the table lists which scenarios fit the systems instead of values.
    planned: str = ""
    published: Published = Published(sheet="")

    @property
    def sheet(self) -> str:
        """The sheet with its values, empty if none are published."""
        return self.published.sheet

    @property
    def layout(self) -> str:
        """The name of its layout."""
        return self.published.layout

    @property
    def select(self) -> Mapping[str, str]:
        """The cells by column that its rows have."""
        return self.published.select


class Figure(documents.FileTable, frozen=True):
    """A figure of the values of *tables* (names) in the rows with the cells in *select*.

    *number* has its number in the article by the kind of reads, *thesis* that in the thesis.
    """

    title: str
    shows: Literal["peaks", "policies", "speedups", "summary"]
    tables: tuple[str, ...]
    number: Mapping[Reads, str] = field(default_factory=dict)
    thesis: str = ""
    select: Mapping[str, str] = field(default_factory=dict)


class _Titled(documents.FileTable, frozen=True):
    title: str
    threads: int = 0


class _File(documents.FileTable, frozen=True):
    """The keys of a study's file."""

    title: str
    reads: tuple[Reads, ...]
    repetitions: int
    family: Mapping[str, Family]
    configuration: tuple[Configuration, ...]
    short: str = ""
    references: tuple[str, ...] = ()
    threads: tuple[int, ...] = ()
    eighths: tuple[int, ...] = ()
    time_limit: documents.Seconds | None = None
    system: Mapping[str, _Titled] = field(default_factory=dict)
    dataset: Mapping[str, _Titled] = field(default_factory=dict)
    sheet: Mapping[str, Sheet] = field(default_factory=dict)
    layout: Mapping[str, Layout] = field(default_factory=dict)
    table: tuple[Table, ...] = ()
    figure: tuple[Figure, ...] = ()


class Case(Struct, frozen=True):
    """One run of a study: a *configuration* of a *family* under *scenario* with *threads* in total."""

    family: Family
    configuration: Configuration
    reads: Reads
    threads: int
    scenario: str

    @property
    def aligner(self) -> str:
        """The name of the aligner."""
        return self.family.aligner.format(variant=self.configuration.variant)

    @property
    def options(self) -> tuple[str, ...]:
        """The aligner's own options."""
        return (*self.family.options, *self.configuration.options)

    @property
    def reads_per_thread(self) -> int | None:
        """Reads (pairs) per thread, None for a run that aligns the reads once."""
        return self.family.reads_per_thread.get(self.reads)

    @property
    def block(self) -> str:
        """Runs of one block are compared with each other: same family, reads and threads."""
        return f"{slug(self.family.name)}.{self.reads}.{self.threads}t"

    @property
    def name(self) -> str:
        """Its name, unique in a study: ``bowtie-2.unpaired.8t.o-parsing-tbb-spin``."""
        return f"{self.block}.{slug(self.configuration.name)}"


class Study(Struct, frozen=True):
    """A study in *file*; *threads* is its series (empty: *eighths* of all PUs), *time_limit* that of a run (s).

    *systems* are those with published values: name -> (title, threads). *datasets* are named in published tables.
    """

    name: str
    file: Path
    title: str
    short: str
    references: tuple[str, ...]
    reads: tuple[Reads, ...]
    repetitions: int
    families: Mapping[str, Family]
    configurations: Mapping[str, Configuration]
    threads: tuple[int, ...]
    eighths: tuple[int, ...]
    time_limit: float | None
    systems: Mapping[str, tuple[str, int]]
    datasets: Mapping[str, str]
    sheets: Mapping[str, Sheet]
    layouts: Mapping[str, Layout]
    tables: Mapping[str, Table]
    figures: tuple[Figure, ...]

    def series(self, pus: int) -> list[int]:
        """Return the thread counts on a host with *pus* PUs: those of the study, and all PUs if it has more."""
        if self.eighths:
            return sorted({max(1, pus * eighth // 8) for eighth in self.eighths})
        return sorted({t for t in self.threads if t <= pus} | ({pus} if pus < max(self.threads) else set()))

    def pairs(self) -> Iterator[tuple[Family, Configuration]]:
        """Yield each family with each of its configurations."""
        for configuration in self.configurations.values():
            for name in configuration.families:
                yield self.families[name], configuration

    def chosen(self, patterns: Sequence[str]) -> list[tuple[Family, Configuration]]:
        """Return the pairs whose configuration, family or ``FAMILY: CONFIGURATION`` matches a pattern (none: all).

        Case is ignored. Raises BadInput for a pattern that matches nothing.
        """
        names = {f"{f.name}: {c.name}": (f, c) for f, c in self.pairs()}
        kept: set[str] = set()
        for pattern in patterns:
            wanted = pattern.lower()
            matching = {
                name
                for name, (f, c) in names.items()
                if any(fnmatch.fnmatchcase(text.lower(), wanted) for text in (name, f.name, c.name))
            }
            if not matching:
                raise BadInput(none_such("configuration", pattern, [*self.configurations, *self.families]))
            kept |= matching
        return [pair for name, pair in names.items() if not patterns or name in kept]

    def cases(
        self,
        host: Topology,
        *,
        threads: Sequence[int] = (),
        patterns: Sequence[str] = (),
        reads: Sequence[Reads] = (),
    ) -> tuple[list[Case], dict[str, str]]:
        """Return the runs on *host*, and the configurations without any run, each with the reason.

        *threads*, *patterns* of configurations (:meth:`chosen`) and *reads* replace or limit those of the study.
        Raises BadInput for more threads than the host's PUs, and for reads that are not the study's.
        """
        pus = host.usable_pu_count
        if wrong := [t for t in threads if not 1 <= t <= pus]:
            raise BadInput(f"--threads {wrong[0]}: this host has {pus} PUs that may be used")
        if other := [kind for kind in reads if kind not in self.reads]:
            raise BadInput(f"study {self.name} has no {other[0]} reads: it has {' and '.join(self.reads)}")
        planned = plan(host)

        @functools.cache
        def refusal(scenario: str) -> str:
            """Return why the host has no such scenario; whether the index fits is known when it runs."""
            try:
                planned.scenario(scenario.partition("+")[0])
            except CannotHere as error:
                return str(error).partition(";")[0]
            return ""

        cases: list[Case] = []
        left_out: dict[str, str] = {}
        for family, configuration in self.chosen(patterns):
            runs, reason = [], ""
            for count in sorted(set(threads)) or self.series(pus):
                if (scenario := configuration.scenario_of(count, pus)) is None:
                    reason = reason or _no_scenario(configuration, pus)
                    continue
                if why := refusal(scenario):
                    reason = why
                    continue
                kinds = [kind for kind in self.reads if not reads or kind in reads]
                runs += [Case(family, configuration, kind, count, scenario) for kind in kinds]
            if not runs:
                left_out[f"{family.name}: {configuration.name}"] = reason
            cases += runs
        return cases, left_out


def _no_scenario(configuration: Configuration, pus: int) -> str:
    """Return why a configuration has no scenario with any of the threads."""
    if configuration.whole:
        return f"it runs with all {pus} PUs"
    return f"none of the thread counts is a multiple of {min(configuration.threads_each, max(1, pus // 2))}"


def _fields(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}


# ----------------------------------------------------------------------
# Reading


def names(folder: Path = FOLDER) -> list[str]:
    """Return the names of the studies in *folder*, sorted."""
    return sorted(file.stem for file in folder.glob("*.toml"))


def study(name: str) -> Study:
    """Return the study *name*, or that in the file *name*; raises BadInput if it is unknown or wrong."""
    if name.endswith(".toml"):
        return read(Path(name))
    if name not in names():
        raise BadInput(none_such("study", name, names()))
    return read(FOLDER / f"{name}.toml")


@functools.lru_cache(maxsize=8)
def read(file: Path) -> Study:
    """Return the study in *file*; raises BadInput with the line of what is wrong."""
    data = documents.parse_toml(documents.read_text(file), file).convert(_File)
    families = {
        name: replace(family, name=name, published=family.published or name)
        for name, family in data.family.items()
    }
    configurations = {configuration.name: configuration for configuration in data.configuration}
    everything: dict[str, Any] = {"families": tuple(families), "configurations": tuple(configurations)}
    return Study(
        name=file.stem,
        file=file,
        title=data.title,
        short=data.short or data.title,
        references=data.references,
        reads=data.reads,
        repetitions=data.repetitions,
        families=families,
        configurations=configurations,
        threads=tuple(sorted(data.threads)),
        eighths=tuple(sorted(data.eighths)),
        time_limit=data.time_limit,
        systems={key: (table.title, table.threads) for key, table in data.system.items()},
        datasets={key: table.title for key, table in data.dataset.items()},
        sheets=data.sheet,
        layouts=data.layout,
        tables={
            table.name: replace(
                table, **{key: names for key, names in everything.items() if not getattr(table, key)}
            )
            for table in data.table
        },
        figures=data.figure,
    )
