# SPDX-License-Identifier: Apache-2.0
"""What judging and the history need of a table of records, small: one part of the table of all hosts.

:mod:`firsttouch.judge.summaries` keeps it in files, which count as long as the source of this module is the same.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import compress
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from firsttouch.benchmarks.kernel_settings import METRICS as SETTINGS
from firsttouch.errors import BadInput
from firsttouch.judge.sprt import Bools, Ints
from firsttouch.records.cases import Case, distinguished, identifying, in_order
from firsttouch.records.catalogue import better_of, checks, counts_if_emulated
from firsttouch.records.schema import columns, in_utc, is_emulated

if TYPE_CHECKING:
    import polars as pl

    from firsttouch.units import Better

#: A session of a host ends if the host has no record for longer than this (ms). Several campaigns of a day are
#: separate sessions. A job that is requeued after hours is two sessions, which does no harm.
GAP = 3_600_000
#: The theoretical bandwidth of one bank (GB/s), which follows from that of a package.
BANK_BANDWIDTH = "theoretical_bandwidth_of_a_bank"
#: The metric of the check ``configuration`` by which a person states that a host has got another board.
REPLACED = "replaced"
#: What tells the board and the processors of a host in the parameters of its configuration.
PARTS = {
    "board": "$.parts.board",
    "processors": "$.parts.processors",
    "interfaces": "$.parts.interfaces",
    "model": "$.settings['cpu.model']",
    "product": "$.settings['board.product']",
}
#: The columns of a table of records that name a case, and all columns that are read.
_NAMING = ("system", "check", "metric", "unit", "better", "parameters")
READ = (*_NAMING, "host", "value", "status", "reason", "software", "time")
#: The fewest rows of the cases of a part that are in memory at a time.
_PART = 1 << 15

Columns = Mapping[str, NDArray[Any]]


class Reduced(Struct, frozen=True):
    """What judging needs of some records, small and without texts in its rows.

    A row is a repetition of a metric that is judged: *time* (ms since 1970), *value*, *valid*, *judged*, and the
    numbers of its *host* and its *reason* in the lists of these. *rows* returns these columns, in memory or from a
    file. Rows are sorted by naming (the columns of :data:`_NAMING`), host, time and value; *counts* is the number
    of rows of each naming. Namings are in the order of their first records. Each of *hosts* has a row.

    *states* are values that explain a host's speed (columns host, metric, value, time, system, bank), *spans* the
    hours with records (system, host, time, end), and *parts* what tells the board and the processors.
    """

    hosts: Sequence[str]
    namings: Sequence[str]
    reasons: Sequence[str]
    counts: Ints
    rows: Callable[[], Columns]
    states: pl.DataFrame
    spans: pl.DataFrame
    parts: pl.DataFrame

    def renamed(self, names: Mapping[str, str]) -> Reduced:
        """Return the same with other names of hosts."""
        if not names:
            return self
        tables: dict[str, Any] = {name: renamed(getattr(self, name), names) for name in TABLES}
        return replace(self, hosts=[names.get(host, host) for host in self.hosts], **tables)

    def of_system(self, system: str) -> Reduced:
        """Return the part of one *system*."""
        chosen = np.array([system_of(naming) == system for naming in self.namings], dtype=np.bool_)
        tables: dict[str, Any] = {name: table for name in TABLES if len(table := getattr(self, name))}
        of_system = {name: table.filter(system=system) for name, table in tables.items()}
        return replace(self._of_namings(chosen), **of_system)

    def of_hosts(self, names: Collection[str]) -> Reduced:
        """Return the rows of some hosts in the same lists and tables."""
        is_named = np.array([host in names for host in self.hosts], dtype=np.bool_)
        if not is_named.any():
            return replace(self, namings=[], counts=self.counts[:0])
        columns = self.rows()
        which = is_named[columns["host"]]
        kept = {name: column[which] for name, column in columns.items()}
        naming = np.repeat(np.arange(len(self.counts)), self.counts)[which]
        return replace(self, counts=np.bincount(naming, minlength=len(self.counts)), rows=lambda: kept)

    def divided(self) -> Iterator[Reduced]:
        """Yield the rows of some cases of a system at a time, in the order of cases; the first has the tables."""
        case_of = np.array(cases_of(self.namings)[1], dtype=np.int64)
        systems = [system_of(naming) for naming in self.namings]
        empty = {name: getattr(self, name).clear() for name in TABLES}
        tables: dict[str, Any] = {}
        chosen, size = np.zeros(len(case_of), dtype=np.bool_), 0
        previous = -1
        for place in np.argsort(case_of, kind="stable").tolist():
            is_next = previous >= 0 and case_of[place] != case_of[previous]
            if is_next and (size >= _PART or systems[place] != systems[previous]):
                yield replace(self._of_namings(chosen), **tables)
                chosen, size, tables = np.zeros_like(chosen), 0, empty
            chosen[place], size, previous = True, size + int(self.counts[place]), place
        yield replace(self._of_namings(chosen), **tables)

    def _of_namings(self, chosen: Bools) -> Reduced:
        """Return the rows of *chosen* namings."""
        if chosen.all():
            return self
        if not chosen.any():
            return replace(self, hosts=[], namings=[], counts=self.counts[:0])
        which = np.repeat(chosen, self.counts)
        columns = {name: column[which] for name, column in self.rows().items()}
        hosts, number = np.unique(columns["host"], return_inverse=True)
        columns["host"] = number.astype(columns["host"].dtype)
        return replace(
            self,
            hosts=[self.hosts[host] for host in hosts.tolist()],
            namings=list(compress(self.namings, chosen.tolist())),
            counts=self.counts[chosen],
            rows=lambda: columns,
        )


def system_of(naming: str) -> str:
    """Return the system of a naming (the columns of :data:`_NAMING`, joined)."""
    return naming.split("\0", 1)[0]


def renamed(table: pl.DataFrame, names: Mapping[str, str]) -> pl.DataFrame:
    """Return a *table* with other names of hosts."""
    return table.with_columns(table["host"].replace(dict(names))) if names else table


#: The columns of rows, and the tables, of :class:`Reduced`.
COLUMNS = ("host", "reason", "time", "value", "valid", "judged")
TABLES = ("states", "spans", "parts")


def reduced(frame: pl.DataFrame) -> Reduced:
    """Return what judging needs of a table of records (see :func:`firsttouch.records.schema.to_frame`)."""
    import polars as pl  # noqa: PLC0415 - a large import

    frame = frame.select(READ).with_columns(milliseconds(frame["time"]))
    # Spans of an hour at most: consecutive ones make sessions.
    hours = frame.group_by("system", "host", pl.col("time").floordiv(GAP).alias("hour"))
    spans = hours.agg(time=pl.col("time").min(), end=pl.col("time").max()).drop("hour")
    data = _is_data()
    states = frame.filter((pl.col("check") == "topology") | (data & (pl.col("better") == "neither")))
    bank = pl.col("parameters").str.json_path_match("$.bank").fill_null("")
    states = states.select("host", "metric", "value", "time", "system", bank=bank)
    valid = pl.col("status") == "valid"
    rows = frame.filter(~pl.col("metric").is_in(SETTINGS) & ~data).select(
        "host",
        "time",
        "value",
        naming=pl.concat_str(_NAMING, separator="\0"),
        valid=valid,
        judged=_counts_if_emulated() | ~is_emulated(),
        reason=pl.when(valid).then(pl.lit("")).otherwise("reason"),
    )
    texts = {name: rows[name].unique(maintain_order=True) for name in ("host", "naming", "reason")}
    rows = rows.with_columns(
        pl.col(name).cast(pl.Enum(listed)).to_physical() for name, listed in texts.items()
    ).sort("naming", "host", "time", "value", maintain_order=True)
    configured = frame.filter(
        pl.col("metric").is_in(["settings", REPLACED]), check="configuration", status="valid"
    )
    of_parts = {name: configured["parameters"].str.json_path_match(path) for name, path in PARTS.items()}
    stated = configured.select("host", "time", "system", stated=pl.col("metric") == REPLACED)
    kept = {name: rows[name].to_numpy() for name in COLUMNS}
    return Reduced(
        hosts=texts["host"].to_list(),
        namings=texts["naming"].to_list(),
        reasons=texts["reason"].to_list(),
        counts=np.bincount(rows["naming"].to_numpy(), minlength=len(texts["naming"])),
        rows=lambda: kept,
        states=pl.concat([states, _of_a_bank(frame), _losses(frame)]),
        spans=spans,
        parts=stated.with_columns(**of_parts),
    )


def nothing() -> Reduced:
    """Return what judging needs of no record."""
    import polars as pl  # noqa: PLC0415 - a large import

    return reduced(pl.DataFrame(schema=columns()))


def _counts_if_emulated() -> pl.Expr:
    """Return whether a row holds for an emulated host, too (see :attr:`Record.judged`)."""
    import polars as pl  # noqa: PLC0415 - a large import

    counting = [name for name in checks() if counts_if_emulated(name, "1")]
    return pl.col("check").is_in(counting) & (pl.col("unit") == "1")


def _is_data() -> pl.Expr:
    """Return whether a row is of a metric that nothing judges."""
    import polars as pl  # noqa: PLC0415 - a large import

    of_checks = [
        (pl.col("check") == name) & pl.col("metric").is_in(list(check.data))
        for name, check in checks().items()
        if check.data
    ]
    without_metrics = [name for name, check in checks().items() if not check.metrics]
    return pl.any_horizontal(pl.col("check").is_in(without_metrics), *of_checks)


def _of_a_bank(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the theoretical bandwidth of one bank of each host; all banks are assumed to be alike."""
    import polars as pl  # noqa: PLC0415 - a large import

    packages, banks = (
        pl.col("parameters").str.json_path_match(f"$.{name}").cast(pl.Float64, strict=False)
        for name in ("packages", "banks")
    )
    of_packages = frame.filter(check="topology", metric="theoretical_bandwidth").filter(banks > 0)
    return of_packages.select(
        "host",
        metric=pl.lit(BANK_BANDWIDTH),
        value=pl.col("value") * packages / banks,
        time="time",
        system="system",
        bank=pl.lit(""),
    ).drop_nulls()


def loss_state(pu: object, chain: object) -> str:
    """Return the name of the state that says how much slower a PU is than its siblings in a chain of ``cores``."""
    return f"loss of PU {pu} in {chain}"


def _losses(frame: pl.DataFrame) -> pl.DataFrame:
    """Return how much slower each slow PU is in each chain, while all run (fractions)."""
    import polars as pl  # noqa: PLC0415 - a large import

    pu, chain, loss = (pl.col("parameters").str.json_path_match(f"$.{name}") for name in ("pu", "chain", "loss"))
    slow = frame.filter(check="cores", metric="slow_cores", status="valid")
    return slow.select(
        "host",
        metric=pl.format(loss_state("{}", "{}"), pu, chain.fill_null("registers")),
        value=loss.cast(pl.Float64, strict=False),
        time="time",
        system="system",
        bank=pl.lit(""),
    ).drop_nulls()


def cases_of(namings: Iterable[str]) -> tuple[list[Case], list[int]]:
    """Return the cases that texts of the naming columns stand for, and the number of the case of each text."""
    numbers: dict[str, int] = {}
    cases: list[Case] = []
    number_of: list[int] = []
    for naming in namings:
        system, check, metric, unit, better, parameters = naming.split("\0")
        direction = better_of(check, metric, cast("Better", better))
        case = Case(system, check, metric, identifying(check, json.loads(parameters)), unit, direction)
        key = f"{system}\0{case.key}"
        if key not in numbers:
            numbers[key] = len(cases)
            cases.append(case)
        number_of.append(numbers[key])
    order = sorted(range(len(cases)), key=lambda number: in_order(cases[number]))
    place = {number: position for position, number in enumerate(order)}
    return distinguished([cases[number] for number in order]), [place[number] for number in number_of]


#: Stands for the time of a record that has none.
_UNKNOWN_TIME = "1970-01-01T00:00:00+00:00"


def milliseconds(texts: pl.Series) -> pl.Series:
    """Return the times of records in ms since 1970, 0 for an empty one; raises BadInput for what is not a time."""
    texts = texts.replace("", _UNKNOWN_TIME)
    times = texts.str.to_datetime("%+", time_zone="UTC", strict=False)
    if times.null_count():
        times = in_utc(texts).str.to_datetime("%+", time_zone="UTC", strict=False)
    if times.null_count():
        raise BadInput(f"not a time: {reprlib.repr(texts.filter(times.is_null())[0])}")
    return times.dt.epoch("ms")
