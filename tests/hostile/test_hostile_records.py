"""Hostile input: records in JSON lines with one damaged field each, and damaged files and folders of records."""

import json
import os
import threading

import pytest

from hostile import VM, Case

LINES = VM.read_text().splitlines()
GOOD = next(r for r in map(json.loads, LINES) if r["check"] == "bandwidth")
TEXT = json.dumps(GOOD)


def with_field(**fields):
    return json.dumps({**GOOD, **fields})


def without(name):
    return json.dumps({k: v for k, v in GOOD.items() if k != name})


def nested(depth):
    return json.dumps({**GOOD, "parameters": 0}).replace(
        '"parameters": 0', f'"parameters": {{"a": {"[" * depth}{"]" * depth}}}'
    )


#: Name -> a line that is not a record, and a pattern of the message.
DAMAGED = {
    **{
        f"{name} {value!r:.20}": (with_field(**{name: value}), f"{name} is")
        for name in (
            "check",
            "metric",
            "unit",
            "status",
            "host",
            "system",
            "partition",
            "reason",
            "better",
            "time",
        )
        for value in (None, 5, ["a"])
    },
    **{
        f"{name} {value!r}": (with_field(**{name: value}), f"{name} ")
        for name in ("parameters", "software", "placement_asked", "placement_found", "samples")
        for value in (None, 5, "a", ["a"])
    },
    **{
        f"without {name}": (without(name), name)
        for name in ("check", "metric", "unit", "better", "samples", "host", "system", "time", "schema")
    },
    **{
        f"{name} with half of a pair": (with_field(**{name: "a\ud800"}), "")
        for name in (
            "check",
            "metric",
            "unit",
            "host",
            "system",
            "partition",
            "reason",
            "status",
            "better",
            "time",
        )
    },
    **{
        f"time {time}": (with_field(time=time), "time is")
        for time in (
            *("yesterday", "", "2026-01-31", "12:00", "2026-13-01T00:00:00", "1767225600", "20260131"),
            *("2026-01-31T24:00:01+00:00", "2026-01-31T00:00:60+00:00", "0001-01-01T00:00:00+14:00"),
        )
    },
    **{
        f"schema {schema!r}": (with_field(schema=schema), "schema") for schema in (0, 2, True, "1", None, 1.5, [1])
    },
    **{
        f"samples {samples!r:.30}": (with_field(samples=samples), "samples")
        for samples in (
            [],
            [True],
            ["1"],
            [None],
            [[1.0]],
            [1.0, None],
            [-1.0],
            [1.0, -1.0],
            [float("nan")],
            [float("inf")],
            [10**400],
            [1e300],
            [1.0, 1e-310, 1e-310],
        )
    },
    "a sample of 5000 digits": (TEXT.replace('"samples": [', f'"samples": [{"9" * 5000}, '), "not JSON"),
    "a sample of 1e999": (TEXT.replace('"samples": [', '"samples": [1e999, '), "samples"),
    **{
        f"{name} with a NUL": (with_field(**{name: "a\0b"}), f"{name} is 'a.x00b', with a NUL character")
        for name in ("check", "metric", "unit", "host", "system", "partition")
    },
    **{
        f"{name} {value!r:.30}": (
            with_field(parameters={**GOOD["parameters"], name: value}),
            f"parameters have {name} ",
        )
        for name, values in {
            "pu_nodes": ([[]], [{}], 0, "0", [-1], [True], [0.5], None, {}),
            "bank": ([[]], "0", -1, True, None, {}),
            "banks": ([{}], "0", 0.5),
            "load_bank": ("0",),
            "pus": ([[]], 5),
            **dict.fromkeys(
                ("reads", "threads", "instances", "size_bytes", "batch", "rate"), ("0", [0], {}, True, None, -1)
            ),
            **dict.fromkeys(("kernel", "policy", "aligner", "lock", "scenario", "pages"), (0, ["a"], {}, None)),
            "settings": ("a", {"a": 5}, ["a"]),
            "provenance": (5, {"a": ["b"]}),
            "stands_for": (5, [5], [{"pu_nodes": 5}], [{"banks": [[]]}]),
            "contradicting": (5, [5], [["a"]]),
        }.items()
        for value in values
    },
    "a parameter that is not finite": (with_field(parameters={"size_bytes": float("inf")}), "parameters"),
    "a parameter of 400 digits": (with_field(parameters={"size_bytes": 10**400}), "parameters"),
    "a parameter's name with half of a pair": (with_field(parameters={"\udfff": 1}), "parameters"),
    "a version that is a number": (with_field(software={"linux": 6}), "software"),
    "nested 50 times": (nested(50), "nested"),
    "nested 5000 times": (nested(5000), "nested"),
    "nested 100000 times": (nested(100_000), "nested"),
    "unknown key": (with_field(colour="red"), "unknown keys"),
    "1000 unknown keys": (json.dumps({**GOOD, **{f"k{i}": i for i in range(1000)}}), "unknown keys"),
    "a list": (f"[{TEXT}]", "no JSON object"),
    "a number": ("5", "no JSON object"),
    "null": ("null", "no JSON object"),
    "a text": ('"a"', "no JSON object"),
    "empty object": ("{}", "schema"),
    "empty line": ("", "not JSON"),
    "half a line": (TEXT[:50], "not JSON"),
    "two records on a line": (TEXT + TEXT, "not JSON"),
    "single quotes": (TEXT.replace('"', "'"), "not JSON"),
    "a byte order mark": ("\ufeff" + TEXT, "not JSON"),
    "a NUL byte": (TEXT.replace("bandwidth", "band\0width", 1), "not JSON"),
    "Latin-1": (TEXT.replace(GOOD["host"], "gr\xfcn").encode("latin-1"), "UTF-8"),
    "UTF-16": (TEXT.encode("utf-16-le").replace(b"\n", b""), ""),
    "gzip": (b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03", "UTF-8"),
}
COMMANDS = {
    "append": ["store", "append", "st", "r.jsonl"],
    "validate": ["validate", "--system", "local", "r.jsonl"],
    "report": ["report", "r.jsonl", "-o", "out"],
}


def as_bytes(line):
    return (line if isinstance(line, bytes) else line.encode("utf-8", "surrogatepass")) + b"\n"


#: Damaged files that a command names, before it counts the others.
NAMED = 20
#: Damaged files in which nothing is left to judge or to report.
ALONE = ("check None", "half a line", "Latin-1")


def beside_a_good_record(names):
    """Returns the files of damaged lines, each in its own folder, and of a good record."""
    files = {f"e/{number}/records.jsonl": as_bytes(DAMAGED[name][0]) for number, name in enumerate(names)}
    return {**files, "e/records.jsonl": TEXT + "\n"}


CASES = [
    *(
        Case(f"{command}: {name}", argv, 2, f"r.jsonl:1: .*{says}", {"r.jsonl": as_bytes(line)})
        for name, (line, says) in DAMAGED.items()
        for command, argv in COMMANDS.items()
        if command == "append" or name in ALONE
    ),
    *(
        Case(
            f"{command}: {names[0]} to {names[-1]}",
            argv,
            2,
            [f"left out: e/{i}/records.jsonl:1: .*{DAMAGED[name][1]}" for i, name in enumerate(names)],
            beside_a_good_record(names),
            leaves=["out", "out/*"] if command == "report" else [],
        )
        for number, names in enumerate(list(DAMAGED)[i : i + NAMED] for i in range(0, len(DAMAGED), NAMED))
        for command, argv in (
            ("validate", ["validate", "--system", "local", "e"]),
            ("report", ["report", "e", "-o", "out"]),
        )
        # Both read in the same way: a report of some of them shows that it goes on without them.
        if command == "validate" or number % 4 == 0
    ),
]
ALL = "\n".join(LINES) + "\n"
OTHER = ALL.replace('"system": "local"', '"system": "other"')
BAD = with_field(host=5) + "\n"


TIMES = {"expected": 2.0, "low": 1.0, "high": 3.0}
ADVICE = {
    **{"document": "firsttouch advice", "schema": 1, "host": "n1", "system": "local", "time": GOOD["time"]},
    **{"aligner": "bwa-mem", "dataset": None, "stop": "settled", "predicted_s": TIMES, "gain": TIMES},
    **{"recommended": "2Inst_Original", "default": "1Inst_Original"},
}


def advice(**changes):
    """Returns advice with changes of its best scenario's time or of the document."""
    rows = [
        {"name": "2Inst_Original", "state": "recommended", "trials": 1, "reason": "", "seconds": TIMES},
        {"name": "1Inst_Original", "state": "dropped", "trials": 1, "reason": "", "seconds": TIMES},
    ]
    if seconds := changes.pop("seconds", None):
        rows[0]["seconds"] = dict.fromkeys(TIMES, seconds)
    return json.dumps({**ADVICE, "scenarios": rows, **changes})


#: Name -> the text of a file that is not advice, and the beginning of the message.
DAMAGED_ADVICE = {
    "nested": ("[" * 100_000, "not an advice file, because it is not JSON"),
    "nested-in-a-run-report": ('{"session_info":' + "[" * 100_000, "not an advice file, because it is not JSON"),
    "nested-value": (
        advice(gain=0).replace('"gain": 0', f'"gain": {"[" * 500}{"]" * 500}'),
        "not an advice file, g",
    ),
    "long": (advice(gain="x" * 100_000), "not an advice file, gain: 'xxx"),
    "long-key": (advice(gain={**TIMES, "x" * 100_000: ""}), "not an advice file, gain.xxx"),
    "long-schema": (advice(schema=10**300), "an advice file of schema 1000"),
    "digits": (advice(gain={**TIMES, "low": 10**400}), "not an advice file, because it is not JSON"),
    "no-time": (advice(seconds=1e-320), "not an advice file, scenarios.0.seconds"),
    "negative": (advice(seconds=-1), "not an advice file, scenarios.0.seconds"),
    "huge": (advice(gain={**TIMES, "high": 1e308}), "not an advice file, gain.high"),
    "empty": ("", "not an advice file, because it is not JSON"),
    "Latin-1": (b"\xff", "not UTF-8"),
}


def pipe(folder):
    """Makes a named pipe with records that can be read once."""
    os.mkfifo(folder / "p")
    threading.Thread(target=(folder / "p").write_text, args=(ALL,), daemon=True).start()


CASES += [
    # The good records of a file are read, and the bad ones are named; nothing is appended or learnt from the file.
    Case("a bad line among good ones, validate", [*COMMANDS["validate"]], 2, "suspect", {"r.jsonl": ALL + BAD}),
    Case(
        "a bad line among good ones, its name",
        [*COMMANDS["validate"]],
        2,
        f"left out: r.jsonl:{len(LINES) + 1}: .*host is 5",
        {"r.jsonl": ALL + BAD},
    ),
    Case(
        "a bad line among good ones, report",
        COMMANDS["report"],
        2,
        "left out: r.jsonl:1: .*host is 5",
        {"r.jsonl": BAD + ALL},
        leaves=["out", "out/*"],
    ),
    Case(
        "a bad line among good ones, append",
        COMMANDS["append"],
        2,
        "r.jsonl:1: .*host is 5",
        {"r.jsonl": BAD + ALL},
    ),
    Case(
        "a bad line among good ones, compare",
        ["report", "--compare", "r.jsonl", "s.jsonl", "-o", "out"],
        2,
        "s.jsonl:1",
        {"r.jsonl": ALL, "s.jsonl": BAD + ALL},
    ),
    Case(
        "many bad files",
        ["validate", "--system", "local", "e"],
        2,
        "left out: 5 more",
        {**{f"e/{i}/records.jsonl": BAD for i in range(25)}, "e/records.jsonl": ALL},
    ),
    Case(
        "other system only",
        ["validate", "--system", "local", "r.jsonl"],
        2,
        "no record of system local: these are .* of other",
        {"r.jsonl": OTHER},
    ),
    Case(
        "other system as well",
        ["validate", "--system", "local", "r.jsonl"],
        0,
        "left out: .* of other",
        {"r.jsonl": OTHER + ALL},
    ),
    Case(
        "given twice",
        ["validate", "--system", "local", "r.jsonl", "./r.jsonl", "s.jsonl"],
        0,
        "undecided",
        {"r.jsonl": ALL, "s.jsonl": ALL},
    ),
    Case(
        "no newline at the end",
        ["validate", "--system", "local", "r.jsonl"],
        0,
        "undecided",
        {"r.jsonl": ALL + TEXT[:90]},
    ),
    Case(
        "lines end as on Windows",
        ["validate", "--system", "local", "r.jsonl"],
        0,
        "undecided",
        {"r.jsonl": ALL.replace("\n", "\r\n")},
    ),
    Case(
        "a bad campaign among records",
        ["validate", "--system", "local", "e"],
        2,
        "left out: .*e/c/campaign.json: (?s:.*)verdict vm suspect",
        {"e/c/campaign.json": "{", "e/records.jsonl": ALL},
    ),
    Case(
        "a bad campaign among records, report",
        ["report", "e", "-o", "out"],
        2,
        "left out: .*e/c/campaign.json: ",
        {"e/c/campaign.json": "{", "e/records.jsonl": ALL},
        leaves=["out", "out/*"],
    ),
    Case(
        "damaged advice",
        ["report", "e", "-o", "out"],
        2,
        [
            *(
                rf"left out: e/{name}/x\.advice\.json:(?:1:)? {says}.{{0,400}}\n"
                for name, (_, says) in DAMAGED_ADVICE.items()
            ),
            "vm",
        ],
        {
            **{f"e/{name}/x.advice.json": text for name, (text, _) in DAMAGED_ADVICE.items()},
            "e/records.jsonl": ALL,
        },
        leaves=["out", "out/*"],
    ),
    Case(
        "damaged advice alone",
        ["report", "e", "-o", "out"],
        2,
        "error: e/x.advice.json: not an advice file, because it is not JSON",
        {"e/x.advice.json": "[" * 100_000},
    ),
    Case(
        "a pipe that is named as advice",
        ["report", "e", "-o", "out"],
        0,
        "report: out",
        lambda f: ((f / "e").mkdir(), (f / "e/records.jsonl").write_text(ALL), os.mkfifo(f / "e/x.advice.json")),
        leaves=["out", "out/*"],
    ),
    Case(
        "a nested run report",
        ["report", "e", "-o", "out"],
        0,
        "report: out",
        {"e/run.json": '{"session_info":' + "[" * 100_000, "e/records.jsonl": ALL},
        leaves=["out", "out/*"],
    ),
    Case("empty file", COMMANDS["validate"], 2, "no record in r.jsonl", {"r.jsonl": b""}),
    Case("no line ends", COMMANDS["validate"], 2, "no record in r.jsonl", {"r.jsonl": b"\0" * 100_000}),
    Case("empty folder", ["report", "e", "-o", "out"], 2, "no record in e", lambda f: (f / "e").mkdir()),
    Case(
        "broken link",
        ["report", "l", "-o", "out"],
        2,
        "l: no such file",
        lambda f: (f / "l").symlink_to("nowhere"),
    ),
    Case("link to itself", ["report", "l", "-o", "out"], 2, "l: ", lambda f: (f / "l").symlink_to("l")),
    Case(
        "folder that links to itself",
        ["report", "e", "-o", "out"],
        2,
        "no record in e",
        lambda f: ((f / "e").mkdir(), (f / "e/e").symlink_to(".")),
    ),
    Case(
        "records.jsonl is a folder",
        ["report", "e", "-o", "out"],
        2,
        "no record in e",
        lambda f: (f / "e/records.jsonl").mkdir(parents=True),
    ),
    Case("a device", ["validate", "--system", "local", "/dev/zero"], 2, "/dev/zero: a device"),
    Case("/dev/null", ["validate", "--system", "local", "/dev/null"], 2, "/dev/null: a device"),
    Case("a pipe, validate", ["validate", "--system", "local", "p"], 0, "undecided", pipe),
    Case("a pipe, report", ["report", "p", "-o", "out"], 0, "report: out", pipe, leaves=["out", "out/*"]),
    Case("a pipe, append", ["store", "append", "st", "p"], 0, "records", pipe, leaves=["st", "st/*"]),
    Case(
        "a shell's pipe",
        ["r.jsonl", "--system", "local"],
        0,
        "undecided",
        {"r.jsonl": ALL},
        process=True,
        prefix=("bash", "-c", 'exec "$1" "$2" "$3" validate <(cat "$4") "${@:5}"', "bash"),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_hostile_records(case, hostile):
    hostile(case)
