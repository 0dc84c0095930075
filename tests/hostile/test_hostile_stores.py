"""Hostile input: stores with Parquet files that are damaged, poisoned, of other types or of other programs."""

import json
import os

import polars as pl
import pytest
from msgspec.structs import replace

from firsttouch.records import schema, store, tables
from hostile import VM, Case

GOOD = schema.read(VM)
#: The files of a store that the cases damage.
NAMES = {"sessions": "sessions-0123456789abcdef.parquet", "values": "values-0123456789abcdef.parquet"}
APPEND = ("store", "append")
TYPES = {"sessions": tables.SESSIONS, "values": tables.VALUES}


def written(folder, number=0, records=GOOD[:1], **changes):
    """Write the two files of some records of another session, with columns of a table replaced."""
    records = [replace(r, samples=tuple(s + number for s in r.samples)) for r in records]
    for table, frame in zip(NAMES, store.files_content(schema.to_frame(records)), strict=True):
        changed = frame.with_columns(**changes.get(table, {})).drop(changes.get(f"without_{table}", []))
        changed.write_parquet(folder / "st" / file_of(table, number))


def file_of(table, number=0):
    return NAMES[table].replace("-0", f"-{number:x}")


def poisoned(table, *columns, records=GOOD[:1], good=GOOD):
    """Returns a function that writes a store of good files, and files with bad *columns* of a table for each."""

    def make(folder):
        (folder / "st").mkdir()
        store.append(folder / "st", good)
        for number, changes in enumerate(columns):
            written(folder, number, records, **{table: changes})

    return make


def without(table, column):
    def make(folder):
        (folder / "st").mkdir()
        written(folder, **{f"without_{table}": [column]})

    return make


def bare(table, content):
    """Returns a function that writes a store with one file of other *content*, or cut in half."""

    def make(folder):
        store.append(folder / "st", GOOD)
        written(folder)
        file = folder / "st" / NAMES[table]
        file.write_bytes(content if content is not None else file.read_bytes()[: file.stat().st_size // 2])

    return make


def added(name, content):
    def make(folder):
        store.append(folder / "st", GOOD)
        (folder / "st" / name).write_bytes(content)

    return make


def pipes(folder):
    store.append(folder / "st", GOOD)
    os.mkfifo(folder / "st" / NAMES["sessions"])


def text(value):
    return pl.lit(value).cast(pl.Categorical)


def case(**changed):
    """Returns the column of a case that some fields of a good one are *changed* in, to JSON texts."""
    fields = {"check": "a", "metric": "a", "parameters": {}, "unit": "a", "better": "lower"}
    texts = {name: json.dumps(value) for name, value in fields.items()} | changed
    return "values", {"case": text("{" + ", ".join(f'"{name}": {value}' for name, value in texts.items()) + "}")}


VALUES = {
    "better is a word": case(better='"fine"'),
    "value is NaN": ("values", {"value": float("nan")}),
    "value is negative": ("values", {"value": -1.0}),
    "time is of another year": ("values", {"time": pl.lit(1 << 60).cast(tables.VALUES["time"])}),
    **{f"{name} with a NUL": case(**{name: '"a\\u0000b"'}) for name in ("check", "metric", "unit")},
    **{
        f"parameters {value}": case(parameters=value)
        for value in (
            '{"pu_nodes": [[]]}',
            '{"pu_nodes": [{}]}',
            '{"reads": "0"}',
            '{"bank": {}}',
            '{"kernel": 5}',
        )
    },
    "case is not JSON": ("values", {"case": text("{x")}),
    "case is a list": ("values", {"case": text("[]")}),
    "case without fields": ("values", {"case": text("{}")}),
    "parameters are nested": case(parameters='{"a": ' + "[" * 5000 + "]" * 5000 + "}"),
    "parameters are not finite": case(parameters='{"a": Infinity}'),
    "parameters with half of a pair": case(parameters='{"a": "\\ud800"}'),
    "host with a NUL": ("sessions", {"host": text("a\0b")}),
    "system with a NUL": ("sessions", {"system": text("a\0b")}),
    "software has a number": ("sessions", {"software": text('{"linux": 6}')}),
    "configuration is not JSON": ("sessions", {"configuration": text("{x")}),
}
WRONG_TYPES = {
    "value is text": ("values", {"value": pl.lit("1.0")}),
    "case is a struct": ("values", {"case": pl.struct("case", "value")}),
    "session is text": ("values", {"session": pl.lit("1")}),
    "time is text": ("values", {"time": pl.lit("2026-01-01T00:00:00.000+00:00")}),
    "end is of no zone": ("sessions", {"end": pl.col("end").dt.replace_time_zone(None)}),
    "software is a struct": ("sessions", {"software": pl.struct("host")}),
}
NEEDED = {
    "values": ("session", "case", "time", "value"),
    "sessions": ("session", "host", "system", "software", "configuration", "end"),
}
VALIDATE = ("validate", "--system", "local", "st")
OUT = ["out", "out/*"]
CASES = [
    # All rows or the whole table are bad: nothing is left to judge.
    *(
        Case(f"all: {name}", VALIDATE, 2, NAMES[table], poisoned(table, columns, records=GOOD, good=[]))
        for name, (table, columns) in {**VALUES, **WRONG_TYPES}.items()
    ),
    # One row of each file is bad: the message names the file, and the rest is read.
    *(
        Case(
            *(f"one: {what} of {table}", VALIDATE, 2),
            [f"left out: st/{file_of(table, i)}: (?s:.*)verdict vm suspect" for i in range(len(columns))],
            poisoned(table, *columns),
        )
        for what, wrong in (("a value", VALUES), ("a type", WRONG_TYPES))
        for table in NAMES
        for all_columns in [[columns for of_table, columns in wrong.values() if of_table == table]]
        for columns in (all_columns[:10], all_columns[10:])
        if columns
    ),
    *(
        Case(
            *(f"one: a null of {table}", VALIDATE, 2),
            [
                f"left out: st/{file_of(table, i)}: column {name} has no value"
                for i, name in enumerate(NEEDED[table])
            ],
            poisoned(table, *({name: pl.lit(None, TYPES[table][name])} for name in NEEDED[table])),
        )
        for table in NAMES
    ),
    *(
        Case(
            *(f"append of wrong samples: {value}", [*APPEND, "to", "st"], 2),
            f"{NAMES['values']}: samples hold no number, or one that is not finite or too large",
            poisoned("values", {"samples": pl.lit(value, pl.List(pl.Float64))}),
        )
        for value in ([], [None, 1.0], [float("nan")], [1e300])
    ),
    *(
        Case(f"without {name}", VALIDATE, 2, f"{NAMES[table]}: .*column {name} is not there", without(table, name))
        for table, names in NEEDED.items()
        for name in names[:3]
    ),
    *(
        Case(f"report, {name}", ["report", "st", "-o", "out"], 2, f"left out: st/{NAMES['values']}: ", make, OUT)
        for name, make in {
            "a type": poisoned(*WRONG_TYPES["value is text"]),
            "not Parquet": bare("values", b"PAR1"),
        }.items()
    ),
    *(
        Case(f"{table} {name}, {verb}", argv, 2, f"{NAMES[table]}: ", bare(table, content))
        for table in NAMES
        for name, content in {
            "not Parquet": b"PAR1" * 100,
            "empty": b"",
            "cut": None,
            "zeros": b"\0" * 10_000,
        }.items()
        for verb, argv in (
            ("validate", VALIDATE),
            ("append", ["store", "append", "to", "st"]),
            ("compare", ["report", "--compare", "st", "st", "-o", "out"]),
        )
    ),
    *(
        Case(f"append: {name}", [*APPEND, "to", "st"], 2, f"{NAMES[table]}: not a table", poisoned(table, columns))
        for name, (table, columns) in WRONG_TYPES.items()
    ),
    Case("a stranger's file", VALIDATE, 0, "undecided", added("other.parquet", b"PAR1")),
    Case("what a killed writer left", VALIDATE, 0, "undecided", added(".partial-n1+x.parquet", b"PAR1")),
    Case("values without sessions", VALIDATE, 0, "undecided", added(NAMES["values"], b"PAR1")),
    Case(
        *("sessions without values", VALIDATE, 2, "No such file"),
        lambda f: (poisoned("values", {})(f), (f / "st" / NAMES["values"]).unlink()),
    ),
    Case("a pipe among the files", VALIDATE, 0, "undecided", pipes),
    Case("a file as the store", [*APPEND, "r.jsonl", "r.jsonl"], 2, "r.jsonl", {"r.jsonl": VM.read_bytes()}),
    Case("a store below a file", [*APPEND, "r.jsonl/st", "r.jsonl"], 2, "r.jsonl", {"r.jsonl": VM.read_bytes()}),
    Case(
        *("a full disk", [*APPEND, "st", "r.jsonl"], 2, "File too large"),
        lambda f: ((f / "st").mkdir(), (f / "r.jsonl").write_bytes(VM.read_bytes())),
        process=True,
        prefix=("sh", "-c", 'ulimit -f 1; exec "$@"', "sh"),
    ),
    Case(
        *("hosts that lead outside", [*APPEND, "st", "r.jsonl"], 0, "records"),
        {"r.jsonl": "".join(json.dumps({**GOOD[0].to_dict(), "host": h}) + "\n" for h in ("../../x", "/x", "-"))},
        ["st", "st/*"],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_hostile_stores(case, hostile):
    hostile(case)
