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


TEXTS = ("check", "metric", "unit", "status", "host", "system", "partition", "reason", "better", "time")
NEEDED = ("check", "metric", "unit", "better", "samples", "host", "system", "time", "schema")
TIMES_OF_DAY = ("12:00", "2026-01-31T24:00:01+00:00", "2026-01-31T00:00:60+00:00", "0001-01-01T00:00:00+14:00")
WRONG_TIMES = ("yesterday", "", "2026-01-31", "2026-13-01T00:00:00", "1767225600", "20260131", *TIMES_OF_DAY)
WRONG_SAMPLE = (True, "1", None, [1.0], -1.0, float("nan"), float("inf"), 10**400, 1e300)
WRONG_SAMPLES = ([], [1.0, None], [1.0, -1.0], [1.0, 1e-310, 1e-310], *([sample] for sample in WRONG_SAMPLE))
#: Name -> a line that is not a record, and a pattern of the message.
DAMAGED = {
    **{
        f"{name} {value!r:.20}": (with_field(**{name: value}), f"{name} is")
        for name in TEXTS
        for value in (None, ["a"])
    },
    **{
        f"{name} {value!r}": (with_field(**{name: value}), f"{name} ")
        for name in ("parameters", "software", "placement_asked", "placement_found", "samples")
        for value in (None, ["a"])
    },
    **{f"without {name}": (without(name), name) for name in NEEDED},
    **{f"{name} with half of a pair": (with_field(**{name: "a\ud800"}), "") for name in TEXTS},
    **{f"time {time}": (with_field(time=time), "time is") for time in WRONG_TIMES},
    **{f"schema {s!r}": (with_field(schema=s), "schema") for s in (0, 2, True, "1", None, 1.5, [1])},
    **{f"samples {samples!r:.30}": (with_field(samples=samples), "samples") for samples in WRONG_SAMPLES},
    "a sample of 5000 digits": (TEXT.replace('"samples": [', f'"samples": [{"9" * 5000}, '), "not JSON"),
    "a sample of 1e999": (TEXT.replace('"samples": [', '"samples": [1e999, '), "samples"),
    **{
        f"{name} with a NUL": (with_field(**{name: "a\0b"}), f"{name} is 'a.x00b', with a NUL character")
        for name in ("check", "metric", "unit", "host", "system", "partition")
    },
    **{
        f"{name} {value!r:.30}": (
            with_field(parameters={**GOOD["parameters"], name: value}),
            f"parameters have {name}[:.[]",
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
        }.items()
        for value in values
    },
    "a parameter that is not finite": (with_field(parameters={"size_bytes": float("inf")}), "parameters"),
    "a parameter of 400 digits": (with_field(parameters={"size_bytes": 10**400}), "parameters"),
    "a parameter's name with half of a pair": (with_field(parameters={"\udfff": 1}), "parameters"),
    "a version that is a number": (with_field(software={"linux": 6}), "software"),
    "nested 5000 times": (nested(5000), "nested"),
    "nested 100000 times": (nested(100_000), "nested"),
    "unknown key": (with_field(colour="red"), "unknown keys"),
    "a list": (f"[{TEXT}]", "no JSON object"),
    "empty object": ("{}", "schema"),
    "empty line": ("", "not JSON"),
    "two records on a line": (TEXT + TEXT, "not JSON"),
    "a byte order mark": ("\ufeff" + TEXT, "not JSON"),
    "a NUL byte": (TEXT.replace("bandwidth", "band\0width", 1), "not JSON"),
    "Latin-1": (TEXT.replace(GOOD["host"], "gr\xfcn").encode("latin-1"), "UTF-8"),
    "gzip": (b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03", "UTF-8"),
}
VALIDATE = ["validate", "--system", "local"]
REPORT = ["report", "e", "-o", "out"]
COMMANDS = {
    "append": ["store", "append", "st", "r.jsonl"],
    "validate": [*VALIDATE, "r.jsonl"],
    "report": ["report", "r.jsonl", "-o", "out"],
}
OUT = ["out", "out/*"]


def as_bytes(line):
    return (line if isinstance(line, bytes) else line.encode("utf-8", "surrogatepass")) + b"\n"


#: Damaged files that a command names, before it counts the others.
NAMED = 20
#: Damaged files in which nothing is left to judge or to report.
ALONE = ("check None", "empty line", "Latin-1")


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
            leaves=OUT if command == "report" else [],
        )
        for number, names in enumerate(list(DAMAGED)[i : i + NAMED] for i in range(0, len(DAMAGED), NAMED))
        for command, argv in (("validate", [*VALIDATE, "e"]), ("report", REPORT))
        # Both read in the same way: a report of some of them shows that it goes on without them.
        if command == "validate" or number % 4 == 0
    ),
]
ALL = "\n".join(LINES) + "\n"
OTHER = ALL.replace('"system": "local"', '"system": "other"')
BAD = with_field(host=5) + "\n"
CAMPAIGN = {"e/c/campaign.json": "{", "e/records.jsonl": ALL}


def pipe(folder):
    """Makes a named pipe with records that can be read once."""
    os.mkfifo(folder / "p")
    threading.Thread(target=(folder / "p").write_text, args=(ALL,), daemon=True).start()


def folder_of(*makes):
    """Returns a function that makes the folder e, and then what each of the functions makes in it."""
    return lambda folder: [(folder / "e").mkdir(), *(make(folder / "e") for make in makes)]


def good(folder):
    (folder / "records.jsonl").write_text(ALL)


#: Name, arguments, pattern of the message, input; the exit status is 2, and nothing is left.
REFUSED = [
    # The good records of a file are read, and the bad ones are named; nothing is appended or learnt from the file.
    ("bad line among good ones, validate", COMMANDS["validate"], "suspect", {"r.jsonl": ALL + BAD}),
    ("bad line, named", COMMANDS["validate"], f"r.jsonl:{len(LINES) + 1}: .*host is 5", {"r.jsonl": ALL + BAD}),
    ("bad line among good ones, append", COMMANDS["append"], "r.jsonl:1: .*host is 5", {"r.jsonl": BAD + ALL}),
    ("other system only", COMMANDS["validate"], "no record of system local: .* of other", {"r.jsonl": OTHER}),
    ("empty file", COMMANDS["validate"], "no record in r.jsonl", {"r.jsonl": b""}),
    ("empty folder", REPORT, "no record in e", folder_of()),
    ("folder that links to itself", REPORT, "no record in e", folder_of(lambda e: (e / "e").symlink_to("."))),
    ("a device", [*VALIDATE, "/dev/zero"], "/dev/zero: a device", {}),
    (
        *("a bad campaign among records", [*VALIDATE, "e"]),
        *("left out: .*e/c/campaign.json: (?s:.*)verdict vm suspect", CAMPAIGN),
    ),
    (
        *("many bad files", [*VALIDATE, "e"], "left out: 5 more"),
        {**{f"e/{i}/records.jsonl": BAD for i in range(25)}, "e/records.jsonl": ALL},
    ),
]
#: The same with the exit status, and a report that is left.
REPORTED = [
    ("bad line, report", COMMANDS["report"], 2, "left out: r.jsonl:1: .*host is 5", {"r.jsonl": BAD + ALL}),
    (
        *("bad line, compare", ["report", "--compare", "r.jsonl", "s.jsonl", "-o", "out"], 2, "s.jsonl:1"),
        {"r.jsonl": ALL, "s.jsonl": BAD + ALL},
    ),
    ("a bad campaign", REPORT, 2, "left out: .*e/c/campaign.json: ", CAMPAIGN),
    (
        *("a nested run report", REPORT, 0, "report: out"),
        {"e/run.json": '{"session_info":' + "[" * 100_000, "e/records.jsonl": ALL},
    ),
    ("a pipe, report", ["report", "p", "-o", "out"], 0, "report: out", pipe),
]
#: Name, further arguments, pattern, input; validate takes the records, of a guest whose caches are not its own.
TAKEN = [
    ("other system as well", ["r.jsonl"], "left out: .* of other", {"r.jsonl": OTHER + ALL}),
    ("given twice", ["r.jsonl", "./r.jsonl", "s.jsonl"], "undecided", {"r.jsonl": ALL, "s.jsonl": ALL}),
    ("no newline at the end", ["r.jsonl"], "undecided", {"r.jsonl": ALL + TEXT[:90]}),
    ("lines end as on Windows", ["r.jsonl"], "undecided", {"r.jsonl": ALL.replace("\n", "\r\n")}),
    ("a pipe, validate", ["p"], "undecided", pipe),
]
CASES += [
    *(Case(name, argv, 2, says, make) for name, argv, says, make in REFUSED),
    *(Case(name, argv, status, says, make, OUT) for name, argv, status, says, make in REPORTED),
    *(Case(name, [*VALIDATE, *argv], 0, says, make) for name, argv, says, make in TAKEN),
    Case("a pipe, append", ["store", "append", "st", "p"], 0, "records", pipe, leaves=["st", "st/*"]),
    Case(
        *("a shell's pipe", ["r.jsonl", "--system", "local"], 0, "undecided", {"r.jsonl": ALL}),
        process=True,
        prefix=("bash", "-c", 'exec "$1" "$2" "$3" validate <(cat "$4") "${@:5}"', "bash"),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_hostile_records(case, hostile):
    hostile(case)
