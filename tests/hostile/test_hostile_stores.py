"""Hostile input: stores with Parquet files that are damaged, poisoned, of other types or of other programs."""

import json
import os

import polars as pl
import pytest

from firsttouch.records import schema, store
from hostile import VM, Case

GOOD = schema.read(VM)
NAME = "n1-1-1-0123abcd.parquet"


def table(**columns):
    """Returns a function that writes a store of one table with *columns* replaced."""

    def make(folder):
        (folder / "st").mkdir()
        frame = schema.to_frame(GOOD).with_columns(**columns)
        frame.write_parquet(folder / "st" / NAME)

    return make


def poisoned(**columns):
    """Returns a function that writes a store of a good table and a table with one bad row."""

    def make(folder):
        store.append(folder / "st", GOOD)
        frame = schema.to_frame(GOOD[:1]).with_columns(**columns)
        frame.write_parquet(folder / "st" / NAME)

    return make


def file_of(number):
    return NAME.replace("-1-1-", f"-1-{number}-")


def all_poisoned(tables):
    """Returns a function that writes a store of a good table and a table with one bad row for each of *tables*."""

    def make(folder):
        store.append(folder / "st", GOOD)
        for number, columns in enumerate(tables):
            frame = schema.to_frame(GOOD[:1]).with_columns(**columns)
            frame.write_parquet(folder / "st" / file_of(number))

    return make


def bare(content, name=NAME):
    def make(folder):
        store.append(folder / "st", GOOD)
        (folder / "st" / name).write_bytes(content)

    return make


def without(column):
    def make(folder):
        (folder / "st").mkdir()
        schema.to_frame(GOOD).drop(column).write_parquet(folder / "st" / NAME)

    return make


def cut(folder):
    """Makes a store with a truncated file."""
    file = store.append(folder / "st", GOOD)
    content = file.read_bytes()
    (folder / "st" / NAME).write_bytes(content[: len(content) // 2])


def pipes(folder):
    store.append(folder / "st", GOOD)
    os.mkfifo(folder / "st" / NAME)


def lit(value, kind=None):
    return pl.lit(value, dtype=kind)


NULL = {name: {name: lit(None, kind)} for name, kind in schema.columns().items()}
NEEDED = ("check", "metric", "unit", "better", "host", "system", "time", "value", "schema", "status")
VALUES = {
    "schema 9": {"schema": lit(9, pl.Int64)},
    "better is a word": {"better": lit("faster")},
    "status is a word": {"status": lit("fine")},
    "value is NaN": {"value": lit(float("nan"))},
    "value is infinite": {"value": lit(float("inf"))},
    "value is not the samples'": {"value": lit(1e6)},
    "samples are empty": {"samples": lit([], pl.List(pl.Float64))},
    "a sample is null": {"samples": lit([None, 1.0], pl.List(pl.Float64))},
    "a sample is NaN": {"samples": lit([float("nan")])},
    "a sample is 1e300": {"samples": lit([1e300]), "value": lit(1e300)},
    "samples are negative": {"samples": lit([-1.0]), "value": lit(-1.0)},
    "time yesterday": {"time": lit("yesterday")},
    "time empty": {"time": lit("")},
    "time with a second 60": {"time": lit("2026-01-01T00:00:60+00:00")},
    "time of a year of five digits": {"time": lit("+12026-01-01T00:00:00+00:00")},
    **{f"{name} with a NUL": {name: lit("a\0b")} for name in ("check", "metric", "unit", "host", "system")},
    **{
        f"parameters {text}": {"parameters": lit(text)}
        for text in ('{"pu_nodes": [[]]}', '{"pu_nodes": [{}]}', '{"reads": "0"}', '{"bank": {}}', '{"kernel": 5}')
    },
    "parameters are not JSON": {"parameters": lit("{x")},
    "parameters are a list": {"parameters": lit("[]")},
    "parameters are nested": {"parameters": lit('{"a": ' + "[" * 5000 + "]" * 5000 + "}")},
    "parameters are not finite": {"parameters": lit('{"a": Infinity}')},
    "parameters with half of a pair": {"parameters": lit('{"a": "\\ud800"}')},
    "software is a number": {"software": lit("5")},
    "software has a number": {"software": lit('{"linux": 6}')},
}
TYPES = {
    "host is a number": {"host": lit(5)},
    "value is text": {"value": lit("1.0")},
    "value is a smaller float": {"value": pl.col("value").cast(pl.Float32)},
    "samples are whole": {"samples": lit([1])},
    "samples are no list": {"samples": lit(1.0)},
    "parameters are a struct": {"parameters": pl.struct("check", "metric")},
    "time is a time": {"time": pl.col("time").str.to_datetime("%+", time_zone="UTC")},
    "schema is text": {"schema": lit("1")},
    "host is categorical": {"host": pl.col("host").cast(pl.Categorical)},
}
#: Damaged files that a command names, before it counts the others.
NAMED = 20
VALIDATE = ("validate", "--system", "local", "st")
OUT = ["out", "out/*"]
CASES = [
    # All rows or the whole table are bad: nothing is left to judge.
    *(Case(f"all: {name}", VALIDATE, 2, NAME, table(**columns)) for name, columns in {**VALUES, **TYPES}.items()),
    # One row of each file is bad: the message names the file, and the rest is read.
    *(
        Case(
            *(f"one: a value, {names[0]} to {names[-1]}", VALIDATE, 2),
            [f"left out: st/{file_of(i)}: (?s:.*)verdict vm suspect" for i in range(len(names))],
            all_poisoned(VALUES[name] for name in names),
        )
        for names in (list(VALUES)[i : i + NAMED] for i in range(0, len(VALUES), NAMED))
    ),
    Case(
        *("one: a type", VALIDATE, 2),
        [f"left out: st/{file_of(i)}: (?s:.*)verdict vm suspect" for i in range(len(TYPES))],
        all_poisoned(TYPES.values()),
    ),
    Case(
        *("one: a null", VALIDATE, 2),
        [f"left out: st/{file_of(i)}: column {name} has no value" for i, name in enumerate(NEEDED)],
        all_poisoned(NULL[name] for name in NEEDED),
    ),
    *(
        Case(
            f"append of null {name}", ["store", "append", "to", "st"], 2, f"{NAME}: .*{name}", poisoned(**columns)
        )
        for name, columns in NULL.items()
    ),
    *(
        Case(f"without {name}", VALIDATE, 2, f"{NAME}: .*column {name} is not there", without(name))
        for name in ("host", "value", "samples", "schema", "parameters")
    ),
    *(
        Case(f"report, {name}", ["report", "st", "-o", "out"], 2, f"left out: st/{NAME}: ", make, OUT)
        for name, make in {"a type": poisoned(**TYPES["host is a number"]), "not Parquet": bare(b"PAR1")}.items()
    ),
    *(
        Case(f"{name}, {verb}", argv, 2, f"{NAME}: ", make)
        for name, make in {
            "not Parquet": bare(b"PAR1" * 100),
            "empty": bare(b""),
            "cut": cut,
            "zeros": bare(b"\0" * 10_000),
        }.items()
        for verb, argv in (
            ("validate", VALIDATE),
            ("append", ["store", "append", "to", "st"]),
            ("compact", ["store", "compact", "st"]),
            ("compare", ["report", "--compare", "st", "st", "-o", "out"]),
        )
    ),
    *(
        Case(f"compact: {name}", ["store", "compact", "st"], 2, f"{NAME}: not a table", poisoned(**columns))
        for name, columns in TYPES.items()
    ),
    Case(
        "a joined file that is none",
        VALIDATE,
        2,
        "compact-0123456789abcdef.parquet: ",
        bare(b"PAR1", "compact-0123456789abcdef.parquet"),
    ),
    Case(
        "compact with a joined file that is none",
        ["store", "compact", "st"],
        2,
        "compact-0123456789abcdef.parquet: ",
        bare(b"PAR1", "compact-0123456789abcdef.parquet"),
    ),
    Case("a stranger's file", VALIDATE, 0, "undecided", bare(b"PAR1", "other.parquet")),
    Case("what a killed writer left", VALIDATE, 0, "undecided", bare(b"PAR1", ".partial-n1+x.parquet")),
    Case("a pipe among the files", VALIDATE, 0, "undecided", pipes),
    Case("a pipe among the files, compact", ["store", "compact", "st"], 0, "nothing to join", pipes),
    Case(
        "a file as the store",
        ["store", "append", "r.jsonl", "r.jsonl"],
        2,
        "r.jsonl",
        {"r.jsonl": VM.read_bytes()},
    ),
    Case(
        "a store below a file",
        ["store", "append", "r.jsonl/st", "r.jsonl"],
        2,
        "r.jsonl",
        {"r.jsonl": VM.read_bytes()},
    ),
    Case("compact of a file", ["store", "compact", "r.jsonl"], 2, "no such folder", {"r.jsonl": VM.read_bytes()}),
    Case("compact of nothing", ["store", "compact", "st"], 2, "no such folder"),
    Case(
        "compact of an empty folder",
        ["store", "compact", "st"],
        0,
        "nothing to join",
        lambda f: (f / "st").mkdir(),
    ),
    *(
        Case(
            f"a full disk, {verb}",
            argv,
            2,
            "st: File too large",
            make,
            process=True,
            prefix=("sh", "-c", 'ulimit -f 1; exec "$@"', "sh"),
        )
        for verb, argv, make in (
            (
                "append",
                ["store", "append", "st", "r.jsonl"],
                lambda f: ((f / "st").mkdir(), (f / "r.jsonl").write_bytes(VM.read_bytes())),
            ),
            ("compact", ["store", "compact", "st"], lambda f: [store.append(f / "st", GOOD) for _ in range(2)]),
        )
    ),
    Case(
        "hosts that lead outside",
        ["store", "append", "st", "r.jsonl"],
        0,
        "records",
        {"r.jsonl": "".join(json.dumps({**GOOD[0].to_dict(), "host": h}) + "\n" for h in ("../../x", "/x", "-"))},
        ["st", "st/*"],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_hostile_stores(case, hostile):
    hostile(case)
