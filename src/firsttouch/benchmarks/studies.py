# SPDX-License-Identifier: Apache-2.0
"""Studies as data: one TOML file each says which configurations of which aligners run with how many threads.

A study is a list of configurations, such as a lock type under one scenario, for the aligners of one or several
families. :func:`study` reads one and :meth:`Study.cases` plans its runs for a host. Tables and figures name the
configurations that a report compares, and where their published values are.
"""

from __future__ import annotations

import fnmatch
import functools
import re
import shlex
import string
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field
from msgspec.structs import asdict, replace

from firsttouch import documents, paths
from firsttouch.documents import Count, Word, Words
from firsttouch.errors import BadInput, CannotHere, Missing, none_such
from firsttouch.genomics import aligners
from firsttouch.host.topology import Topology
from firsttouch.scenarios.placement import ScenarioName, parse_name, plan

# ----------------------------------------------------------------------
# The file

Reads = Literal["unpaired", "paired"]
#: Kind of reads -> how many files the aligner gets.
MATES: Mapping[Reads, int] = {"unpaired": 1, "paired": 2}
_Counts = Annotated[tuple[Count, ...], Meta(min_length=1)]
_Format = Annotated[
    str,
    Meta(
        pattern=r"^,?(d|\.[0-9]f)\Z",
        description="a format of numbers: d for whole ones, .2f for decimals, with a comma first for thousands",
    ),
]
_Select = Mapping[str, Word]


# ----------------------------------------------------------------------
# Studies


def slug(name: str) -> str:
    """Return a *name* as a part of the name of a step: ``O-parsing, TBB spin`` as ``o-parsing-tbb-spin``."""
    return re.sub(r"[^a-z0-9+]+", "-", name.lower()).strip("-")


class Family(documents.Table, frozen=True):
    """The variants of one aligner: *name* as in the tables, *aligner* as a template with ``{variant}``.

    *published* is its name in the published tables. A figure draws it in the panel of the family *beside* it.
    *default* is the configuration that the aligner has unless one asks for another.
    *options* are the aligner's own. *reads_per_thread*: pairs if paired; empty: a run aligns the reads once.
    *tags* name the version of the *source* for each build.
    """

    aligner: Word
    name: str = ""
    published: Word = ""
    beside: Word = ""
    default: Word = ""
    options: tuple[Word, ...] = ()
    reads_per_thread: Mapping[Reads, Count] = field(default_factory=dict)
    source: Annotated[str, Meta(pattern=r"^https?://\S+$")] = ""
    tags: Mapping[str, Word] = field(default_factory=dict)


class Configuration(documents.Table, frozen=True):
    """A configuration: *name* as in the tables, the *families* that have it, and their *variant*.

    *scenario* is a template: ``{threads}`` are the threads of one process, ``{processes}`` is the number of
    processes of ``{each}`` threads. One without placeholders runs with all PUs only. *build* names the tag of a
    family, *macros* those of the compiler.
    """

    name: Word
    families: Words
    scenario: Word
    variant: Word = ""
    threads_each: Count = 0
    options: tuple[Word, ...] = ()
    build: Word = ""
    macros: Words = ()

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


class Sheet(documents.Table, frozen=True):
    """A *file* of published values (CSV) and its columns with *text* and with *numbers*.

    *value* is the column of the result, in *unit* and with *axis* as its name in figures; *error* its error in
    percent; *threads* the column of the number of threads. *label* names the place of a row in the publication,
    as a template of columns. *measured* is the sentence on how the values were measured.
    """

    file: Word
    text: Words
    numbers: Words
    value: Word
    label: Word
    error: Word = ""
    threads: Word = "threads"
    unit: Word = ""
    axis: Word = ""
    measured: Word = ""

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns, with those that follow from the others."""
        columns = (*self.text, *self.numbers)
        of_runs = {"instances", "threads_per_instance", "policy"} <= set(columns)
        return (*columns, *OF_SCENARIO) if of_runs else columns


class ValueCell(documents.Table, frozen=True):
    """The heading, column and format of a value; without a format, it has two decimals or more."""

    head: Word
    column: Word
    format: _Format = ""


class Layout(documents.Table, frozen=True):
    """How a table shows rows of a sheet: columns of the sheet in *rows*, by heading, and above the *columns*.

    There is a table for each value of the column *each*. The two highest values of the column *best* are marked.
    """

    rows: _Select
    columns: Words
    cells: Annotated[tuple[ValueCell, ...], Meta(min_length=1)]
    each: Word = ""
    best: Word = ""


class Table(Struct, frozen=True):
    """A table: the *configurations* of *families* that it compares, and the published rows with their values.

    *number* is its number in the article and *thesis* that in the thesis. The values are the rows of *sheet* with
    the cells in *select*, shown as *layout* says. A table with *planned*, the sheet of the indexes' sizes, lists
    which scenarios fit the systems instead. *note* is a sentence below it.
    """

    name: Word
    title: Word
    families: Words = ()
    configurations: Words = ()
    number: Word = ""
    thesis: Word = ""
    note: Word = ""
    planned: Word = ""
    sheet: Word = ""
    layout: Word = ""
    select: _Select = field(default_factory=dict)


class Figure(documents.Table, frozen=True):
    """A figure of the values of *tables* (names) in the rows with the cells in *select*.

    *shows* is the kind of figure: peaks, policies, speedups or summary. *number* has its number in the article by
    the kind of reads, *thesis* that in the thesis.
    """

    title: Word
    shows: Literal["peaks", "policies", "speedups", "summary"]
    tables: Words
    number: Mapping[Reads, Word] = field(default_factory=dict)
    thesis: Word = ""
    select: _Select = field(default_factory=dict)


class _Titled(documents.Table, frozen=True):
    title: Word
    threads: Count = 1


class _Published(documents.Table, frozen=True):
    sheet: Word
    layout: Word = ""
    select: _Select = field(default_factory=dict)


class _TableKeys(documents.Table, frozen=True):
    name: Word
    title: Word
    families: Words = ()
    configurations: Words = ()
    number: Word = ""
    thesis: Word = ""
    note: Word = ""
    planned: Word = ""
    published: _Published | None = None


class _File(documents.Table, frozen=True):
    title: Word
    reads: Annotated[tuple[Reads, ...], Meta(min_length=1)]
    repetitions: Count
    family: Annotated[
        Mapping[Annotated[str, Meta(pattern=r"^[A-Za-z0-9]+([ -][A-Za-z0-9]+)*\Z")], Family], Meta(min_length=1)
    ]
    configuration: Annotated[tuple[Configuration, ...], Meta(min_length=1)]
    short: Word = ""
    references: Words = ()
    threads: _Counts = ()
    eighths: Annotated[tuple[Annotated[int, Meta(ge=1, le=8)], ...], Meta(min_length=1)] = ()
    time_limit: documents.Seconds | None = None
    system: Mapping[str, _Titled] = field(default_factory=dict)
    dataset: Mapping[str, _Titled] = field(default_factory=dict)
    sheet: Mapping[str, Sheet] = field(default_factory=dict)
    layout: Mapping[str, Layout] = field(default_factory=dict)
    table: tuple[_TableKeys, ...] = ()
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


class Recognized(Struct, frozen=True):
    """What a record of a study is of."""

    family: Family
    configuration: Configuration
    reads: Reads
    threads: int


class Study(Struct, frozen=True):
    """A study; *threads* is its series (empty: *eighths* of all PUs), *time_limit* that of one run in seconds.

    *systems* are those with published values: name -> (title, threads). *datasets* are named in published tables.
    """

    name: str
    document: documents.Document
    title: str
    references: tuple[str, ...]
    reads: tuple[Reads, ...]
    repetitions: int
    families: Mapping[str, Family]
    configurations: Mapping[str, Configuration]
    threads: tuple[int, ...] = ()
    eighths: tuple[int, ...] = ()
    time_limit: float | None = None
    systems: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    datasets: Mapping[str, str] = field(default_factory=dict)
    short: str = ""
    sheets: Mapping[str, Sheet] = field(default_factory=dict)
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)
    figures: tuple[Figure, ...] = ()

    @property
    def reference(self) -> str:
        """The publication in one text."""
        return " ".join(self.references)

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

    def missing(self, cases: Iterable[Case]) -> dict[str, str]:
        """Return the aligners of *cases* whose program is not installed here, each with the reason.

        Raises BadInput, with the line of the family, for an aligner that nobody described.
        """
        reasons = {}
        for case in {case.aligner: case for case in cases}.values():
            try:
                aligners.aligner(case.aligner).version()
            except Missing as error:
                reasons[case.aligner] = str(error)
            except BadInput as error:
                if error.file:  # the aligner's own file is wrong
                    raise
                raise self.document.error(str(error), "family", case.family.name, "aligner") from error
        return reasons

    def recognized(self, parameters: Mapping[str, Any]) -> Recognized | None:
        """Return what a record with these *parameters* is of, None if it is not of this study.

        Aligner with options, scenario and reads per thread identify a configuration.
        """
        aligner, name = str(parameters.get("aligner")), parse_name(str(parameters.get("scenario")))
        if name is None:
            return None
        instances, each = (int(parameters[key]) for key in ("instances", "threads"))
        for family, configuration in self.pairs():
            case = Case(family, configuration, self.reads[0], instances * each, "")
            if aligner == _label(case) and configuration.has(name, instances):
                if (reads := _reads_of(family, parameters, instances * each)) is None:
                    reads = self.reads[0]
                return Recognized(family, configuration, reads, instances * each)
        return None


def _no_scenario(configuration: Configuration, pus: int) -> str:
    """Return why a configuration has no scenario with any of the threads."""
    if configuration.whole:
        return f"it runs with all {pus} PUs"
    return f"none of the thread counts is a multiple of {min(configuration.threads_each, max(1, pus // 2))}"


def _label(case: Case) -> str:
    """Return the aligner's name with its options as records have it."""
    return shlex.join([case.aligner, *case.options])


def _reads_of(family: Family, parameters: Mapping[str, Any], threads: int) -> Reads | None:
    """Return the kind of reads of a record with reads per thread (pairs count twice), None if it is unknown."""
    per_thread, reads = parameters.get("reads_per_thread"), parameters.get("reads")
    if not family.reads_per_thread or not per_thread or not reads:
        return None
    return "paired" if reads > 1.5 * per_thread * threads else "unpaired"


# ----------------------------------------------------------------------
# Reading


def files() -> dict[str, Path]:
    """Return the file of each study by name, sorted; those of users and sites come before the built-in ones."""
    return paths.data_files("studies", ".toml")


def studies() -> list[str]:
    """Return the names of all studies."""
    return list(files())


def study(name: str) -> Study:
    """Return the study *name*; raises BadInput, with file and line, if it is unknown or wrong."""
    by_name = files()
    if name not in by_name:
        raise BadInput(none_such("study", name, by_name))
    return read(by_name[name])


def readable() -> list[Study]:
    """Return all studies; a wrong file is reported on standard error, once, and ignored."""
    result = []
    for file in files().values():
        try:
            result.append(read(file))
        except BadInput as error:
            _report(f"firsttouch: this file is ignored: {error}")
    return result


@functools.cache
def _report(text: str) -> None:
    print(text, file=sys.stderr)


def read(file: Path) -> Study:
    """Return the study in *file*; raises BadInput with the line of what is wrong."""
    return parsed(documents.read_text(file), file)


@functools.lru_cache(maxsize=8)
def parsed(text: str, file: Path) -> Study:
    """Return the study in a TOML *text*, the content of *file*; raises BadInput with the line of what is wrong."""
    document = documents.parse_toml(text, file)
    data = document.convert(_File)
    families = {
        key: replace(family, name=key, published=family.published or key) for key, family in data.family.items()
    }
    configurations = data.configuration
    by_name = {configuration.name: configuration for configuration in configurations}
    _check(document, families, configurations)
    tables = [_read_table(table, families, by_name) for table in data.table]
    checked = Study(
        name=file.stem,
        document=document,
        title=data.title,
        short=data.short or data.title,
        references=data.references,
        reads=data.reads,
        repetitions=data.repetitions,
        families=families,
        configurations=by_name,
        threads=tuple(sorted(data.threads)),
        eighths=tuple(sorted(data.eighths)),
        time_limit=data.time_limit,
        systems={key: (table.title, table.threads) for key, table in data.system.items()},
        datasets={key: table.title for key, table in data.dataset.items()},
        sheets=data.sheet,
        layouts=data.layout,
        tables={table.name: table for table in tables},
        figures=data.figure,
    )
    _check_tables(document, checked)
    return checked


def _read_table(
    table: _TableKeys, families: Mapping[str, Family], configurations: Mapping[str, Configuration]
) -> Table:
    values = asdict(table)
    published = asdict(values.pop("published") or _Published(sheet=""))
    values["families"] = table.families or tuple(families)
    values["configurations"] = table.configurations or tuple(configurations)
    return Table(**values, **published)


def _fields(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}


def _check(
    document: documents.Document, families: Mapping[str, Family], configurations: Sequence[Configuration]
) -> None:
    """Raise BadInput for the first value, by line, that matches the schema but cannot work."""
    if ("threads" in document.data) == ("eighths" in document.data):
        document.problem("a study has either 'threads', a list of numbers, or 'eighths' of all PUs")
    for name, family in families.items():
        if family.beside and family.beside not in families:
            document.problem(none_such("family", family.beside, families), "family", name, "beside")
        having = [configuration.name for configuration in configurations if name in configuration.families]
        if family.default and family.default not in having:
            document.problem(none_such("configuration", family.default, having), "family", name, "default")
        for reason in _wrong_template(family.aligner, {"variant"}):
            document.problem(reason, "family", name, "aligner")
    for twice in _repeated(slug(name) for name in families):
        document.problem(f"two families are '{twice}' in the names of steps", "family")
    for number, configuration in enumerate(configurations):
        for reason in _wrong_scenario(configuration):
            document.problem(reason, "configuration", number, "scenario")
        for name in configuration.families:
            for key, reason in _wrong_in_family(configuration, name, families):
                document.problem(reason, "configuration", number, key)
    slugs = [slug(configuration.name) for configuration in configurations]
    for twice in _repeated(slugs):
        number = max(n for n, text in enumerate(slugs) if text == twice)
        reason = f"a second configuration '{configurations[number].name}': name all families in the first"
        document.problem(reason, "configuration", number, "name")
    document.refuse_problems()


def _wrong_in_family(
    configuration: Configuration, name: str, families: Mapping[str, Family]
) -> Iterator[tuple[str, str]]:
    """Yield (key, reason) for what of a configuration does not suit the family *name*."""
    if name not in families:
        yield "families", none_such("family", name, families)
        return
    family = families[name]
    if bool(configuration.variant) != ("{variant}" in family.aligner):
        lacking = "has no {variant}" if configuration.variant else "needs a variant"
        yield "variant", f"aligner '{family.aligner}' of family {name} {lacking}"
    if configuration.build and configuration.build not in family.tags:
        yield "build", none_such(f"tag of {name}", configuration.build, family.tags)


def _repeated(values: Iterable[str]) -> list[str]:
    ordered = list(values)
    return sorted({value for value in ordered if ordered.count(value) > 1})


def _wrong_template(template: str, allowed: set[str]) -> Iterator[str]:
    try:
        unknown = sorted(_fields(template) - allowed)
        if not unknown:
            template.format(**dict.fromkeys(allowed, 1))
    except (ValueError, KeyError, IndexError) as error:
        yield f"'{template}': {error}"
        return
    if unknown:
        names = ", ".join(f"{{{name}}}" for name in sorted(allowed))
        yield f"unknown placeholder {{{unknown[0]}}} in '{template}': known are {names}"


def _wrong_scenario(configuration: Configuration) -> Iterator[str]:
    """Yield the faults of a configuration's scenario."""
    template = configuration.scenario
    wrong = list(_wrong_template(template, {"threads", "processes", "each"}))
    yield from wrong
    if wrong:
        return
    used = _fields(template)
    if used not in (set(), {"threads"}, {"processes", "each"}):
        yield f"'{template}' has {{threads}}, or {{processes}} and {{each}}, or none of them"
    elif ("each" in used) != bool(configuration.threads_each):
        yield "{processes} and {each} need threads_each, the threads of each process, which nothing else needs"
    try:
        if parse_name(template.format(threads=16, processes=2, each=8)) is None:
            yield f"'{template}' is not a scenario: write it as in 1x{{threads}}-unbound or 2Inst_Interleave"
    except BadInput as error:
        yield str(error)


def _check_tables(document: documents.Document, checked: Study) -> None:
    """Raise BadInput for names in tables and figures that the study does not have."""
    for number, table in enumerate(checked.tables.values()):
        for key, names, there in (
            ("families", table.families, checked.families),
            ("configurations", table.configurations, checked.configurations),
        ):
            for name in set(names) - set(there):
                document.problem(none_such(key.removesuffix("s"), name, there), "table", number, key)
        for reason in _wrong_values(table, checked):
            document.problem(reason, "table", number)
    if len(checked.tables) < len(document.data.get("table", [])):
        twice = _repeated(table["name"] for table in document.data["table"])
        document.problem(f"a second table '{twice[0]}'", "table")
    for name, sheet in checked.sheets.items():
        for column in {sheet.value, *filter(None, [sheet.error])} - set(sheet.numbers):
            document.problem(none_such("column of numbers", column, sheet.numbers), "sheet", name)
        for reason in _wrong_template(sheet.label, set(sheet.columns)):
            document.problem(reason, "sheet", name, "label")
    for number, figure in enumerate(checked.figures):
        for name in set(figure.tables) - set(checked.tables):
            document.problem(none_such("table", name, checked.tables), "figure", number, "tables")
        drawn = figure.tables if figure.number else ()  # figures without a number are of hosts only
        for name in (name for name in drawn if name in checked.tables and not checked.tables[name].sheet):
            document.problem(f"table {name} has no published values to draw", "figure", number, "tables")
    document.refuse_problems()


def _wrong_values(table: Table, checked: Study) -> Iterator[str]:
    """Yield what is wrong about the published values of a table."""
    names: list[tuple[str, str, Iterable[str]]] = [
        ("sheet", name, checked.sheets) for name in (table.sheet, table.planned) if name
    ]
    names += [("layout", table.layout, checked.layouts)] if table.layout else []
    if wrong := [none_such(kind, name, there) for kind, name, there in names if name not in there]:
        yield from wrong
    elif table.sheet:
        there = checked.sheets[table.sheet].columns
        layout = checked.layouts.get(table.layout)
        used = [*layout.rows.values(), *layout.columns, layout.each, layout.best] if layout else []
        used += [cell.column for cell in layout.cells] if layout else []
        yield from (none_such("column", c, there) for c in [*used, *table.select] if c and c not in there)
        if not layout and not table.planned:
            yield f"published values need a layout: there are {', '.join(checked.layouts) or 'none'}"
