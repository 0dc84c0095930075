# SPDX-License-Identifier: Apache-2.0
"""The two tables of a store: a row per session, and a row per value.

:func:`split` makes them of a table of records, and :meth:`Tables.records` joins them again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache

import polars as pl
from msgspec import Struct

from firsttouch.records.schema import GAP, wrong_value

TEXT, _TIME = pl.Categorical(), pl.Datetime("us", "UTC")
#: The columns of the table of sessions; *values* is the number of rows in the other table.
SESSIONS: dict[str, pl.DataType] = {
    "session": pl.UInt64(),
    **dict.fromkeys(("host", "system", "partition"), TEXT),
    **dict.fromkeys(("begin", "end"), _TIME),
    **dict.fromkeys(("software", "configuration"), TEXT),
    "values": pl.UInt32(),
}
#: The columns of the table of values; *samples* is null if the value is the only one, *invalid* if it is valid.
VALUES: dict[str, pl.DataType] = {
    "session": pl.UInt64(),
    "case": pl.String(),
    "time": _TIME,
    "value": pl.Float64(),
    "samples": pl.List(pl.Float64),
    "invalid": pl.String(),
}
#: The columns of records that a session's records share, besides the configuration and the time.
SHARED = ("system", "partition", "host", "software")
#: The columns of records that are in the JSON text of a case.
CASE = ("check", "metric", "parameters", "unit", "better")
_NOTHING, _VALID, _INVALID = (pl.lit(text).cast(TEXT) for text in ("{}", "valid", "invalid"))
#: The columns that a store leaves out, with their empty value: where threads and pages were placed, and the order
#: of the measurements.
LEFT_OUT = {
    **dict.fromkeys(("placement_asked", "placement_found"), pl.lit("[]").cast(TEXT)),
    "order": _NOTHING,
}
_IS_CONFIGURATION = (pl.col("check") == "configuration") & (pl.col("metric") == "settings")


class Tables(Struct, frozen=True, dict=True):
    """Some records: *sessions*, and *values*, whose column ``session`` is the row number of their session."""

    sessions: pl.DataFrame
    values: pl.DataFrame

    @cached_property
    def cases(self) -> pl.Series:
        """The texts of the cases, each once."""
        return self.values["case"].unique(maintain_order=True)

    def filter(self, where: pl.Expr) -> Tables:
        """Return the records whose values meet a condition."""
        return Tables(self.sessions, self.values.filter(where))

    def of_cases(self, texts: Sequence[str]) -> Tables:
        """Return the records of some cases."""
        return self.filter(pl.col("case").is_in(texts)) if texts else Tables(self.sessions, self.values.clear())

    def of_checks(self, *names: str) -> Tables:
        """Return the records of some checks."""
        return self.of_cases([text for text in self.cases if fields_of(text)["check"] in names])

    def by_system(self, system: str | None = None) -> Iterator[tuple[str, Tables]]:
        """Yield the records of each system, or of one *system* only."""
        systems = self.sessions["system"]
        names = systems.unique(maintain_order=True).to_list()
        if len(names) == 1 and system in {None, *names} and len(self.values):
            yield names[0], self
            return
        for name in names:
            is_of = (systems == name).to_numpy()[self.values["session"].to_numpy()]
            if system in {None, name} and is_of.any():
                yield name, self if is_of.all() else Tables(self.sessions, self.values.filter(is_of))

    def records(self, columns: Iterable[str]) -> pl.DataFrame:
        """Return some *columns* of the table of records."""
        types = dict.fromkeys(("case", *CASE), TEXT)
        cases = pl.DataFrame([{"case": text, **fields_of(text)} for text in self.cases], types)
        rows = self.values.join(cases, on="case", how="left", maintain_order="left")
        sessions = self.sessions.select(*SHARED, "configuration")
        rows = rows.hstack(sessions[self.values["session"].to_numpy()])
        restored = {
            "parameters": pl.when(_IS_CONFIGURATION).then("configuration").otherwise("parameters"),
            "samples": pl.coalesce("samples", pl.concat_list("value")),
            "status": pl.when(pl.col("invalid").is_null()).then(_VALID).otherwise(_INVALID),
            "reason": pl.col("invalid").fill_null(pl.lit("").cast(TEXT)),
            **{name: text.alias(name) for name, text in LEFT_OUT.items() if name not in rows.columns},
        }
        return rows.select(restored.get(name, pl.col(name)).alias(name) for name in columns)


def split(records: pl.DataFrame) -> Tables:
    """Return the tables of *records* (:func:`firsttouch.records.schema.columns`), with the values sorted by time.

    A session has the records of one host with the same software and configuration, without a longer gap than
    :data:`GAP`. The configuration is the host's last one before each record, or else the first one after it. The
    parameters of its own record are in the session only.
    """
    rows = records.sort("time", maintain_order=True)
    gap = (pl.col("time").diff() > pl.duration(milliseconds=GAP)).fill_null(value=False)
    rows = rows.with_columns(visit=gap.cum_sum().over("system", "host"))
    stated = pl.when(_IS_CONFIGURATION).then("parameters")
    rows = rows.with_columns(configuration=stated.forward_fill().over("system", "host", "visit"))
    rows = rows.with_columns(pl.col("configuration").backward_fill().over("system", "host", "visit"))
    rows = rows.with_columns(
        pl.col("configuration").fill_null(_NOTHING),
        parameters=pl.when(_IS_CONFIGURATION).then(_NOTHING).otherwise("parameters"),
        samples=pl.when(pl.col("samples").list.len() > 1).then("samples"),
        invalid=pl.when(pl.col("status") != "valid").then("reason"),
    )
    key = [*SHARED, "configuration", "visit"]
    sessions = rows.group_by(key, maintain_order=True).agg(
        begin=pl.col("time").first(), end=pl.col("time").last(), values=pl.len().cast(pl.UInt32)
    )
    cases = rows.select(CASE).unique()
    fields = ({**case, "parameters": json.loads(case["parameters"])} for case in cases.iter_rows(named=True))
    cases = cases.with_columns(case=pl.Series(list(map(json.dumps, fields)), dtype=TEXT))
    numbered = sessions.with_row_index("session").select("session", *key)
    for others, on in ((numbered, key), (cases, CASE)):
        rows = rows.join(others, on=on, how="left", maintain_order="left")
    left_out = [name for name in LEFT_OUT if name in rows.columns]
    return Tables(sessions.drop("visit"), rows.select(*VALUES, *left_out))


@lru_cache(maxsize=1 << 16)
def fields_of(case: str) -> Mapping[str, str]:
    """Return the fields :data:`CASE` of the JSON text of a case; parameters are JSON."""
    fields = json.loads(case)
    return {**fields, "parameters": json.dumps(fields["parameters"], sort_keys=True)}


def wrong_case(text: str) -> str:
    """Return the defect of the JSON *text* of a case, or an empty string."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        return f"is not JSON: {error}"
    if not isinstance(fields, dict) or {*fields} != {*CASE}:
        return f"is not a JSON object with {', '.join(CASE)}"
    wrong = ((name, wrong_value(name, value)) for name, value in fields.items())
    return next((f"{name} {reason}" for name, reason in wrong if reason), "")
