"""Hostile input: encodings, names that are not UTF-8, closed descriptors, and folders without permission."""

import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from hostile import VM, Case, check

LINES = [json.loads(line) for line in VM.read_text().splitlines()]


def as_lines(records):
    return "".join(json.dumps(record) + "\n" for record in records)


UMLAUT = as_lines({**record, "host": "gr\u00fcn\u4e2d"} for record in LINES)
RAW = as_lines({**record, "host": "a\x1b[31m\a\nb"} for record in LINES)
FLEET = as_lines({**record, "host": f"n\x1b[3{i}m\a\nb"} for record in LINES for i in range(6))
#: Records of two checks, for a report that is drawn quickly.
FEW, RAW_FEW = (
    as_lines(
        record for record in map(json.loads, text.splitlines()) if record["check"] in {"topology", "contention"}
    )
    for text in (VM.read_text(), RAW)
)
VALIDATE = ("validate", "--strict", "--system", "local", "r.jsonl")
REPORT = ("report", "r.jsonl", "-o")
OUT = ["out", "out/*"]
BYTES = os.fsdecode(b"o\xff")
FILE = {"r.jsonl": VM.read_bytes()}


def shell(redirections):
    """Returns the options of a case that runs as a process, with redirected streams."""
    return {"process": True, "prefix": ("sh", "-c", f'exec "$@" {redirections}', "sh")}


def at_bytes(folder):
    (folder / BYTES).mkdir()
    (folder / BYTES / "records.jsonl").write_bytes(VM.read_bytes())


#: Name, arguments, exit status, pattern, records; these are the cases without further options.
PLAIN = [
    ("lines in a folder not UTF-8", ["validate", "--system", "local", BYTES], 0, "undecided", at_bytes),
    ("control characters in a host", VALIDATE, 4, r"a\\x1b\[31m\\x07\\nb", {"r.jsonl": RAW}),
    ("control characters in a host, JSON", [*VALIDATE, "--json"], 4, r"a\\u001b", {"r.jsonl": RAW}),
    ("control characters in a fleet", VALIDATE, 0, r"n\\x1b\[30m\\x07\\nb pass", {"r.jsonl": FLEET}),
    ("control characters in an argument", ["validate", "--system", "a\x1b[31m\nb", "r.jsonl"], 2, r"a\\x1b", FILE),
    ("control characters in a command", ["vali\x1bdate\n"], 2, "no command", {}),
    ("control characters in a file's name", ["report", "a\x1b\nb", "-o", "out"], 2, r"a\\x1b\\nb", {}),
]
CASES = [
    *(
        Case(f"{encoding} {stream}", [*VALIDATE, *more], 4, says, {"r.jsonl": UMLAUT}, encoding=encoding)
        for encoding in ("ascii", "latin-1", "utf-8", "cp1252:strict")
        for stream, more, says in (("text", [], "gr"), ("JSON", ["--json"], r"gr\\u00fcn"))
    ),
    *(
        Case(
            *(f"process with {variables}", VALIDATE, 4, "gr", {"r.jsonl": UMLAUT}),
            environment=variables,
            process=True,
        )
        for variables in ({"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0"})
    ),
    *(
        Case(f"{argv[0]} {closed}", argv, status, "", {"r.jsonl": FEW}, **shell(closed), leaves=OUT)
        # Output that is lost is an error, after all else that a command does.
        for argv, status, closings in (
            (["topology"], 0, ("2>&-", "<&-")),
            (["topology"], 2, (">&-", ">&- 2>&- <&-")),
            (VALIDATE, 2, (">&- 2>&- <&-",)),
            ([*REPORT, "out"], 2, (">&- 2>&- <&-",)),
        )
        for closed in closings
    ),
    Case("full standard output", ["topology"], 2, "No space left", **shell(">/dev/full")),
    Case(
        "full standard error", ["validate", "--system", "nosuch", "r.jsonl"], 2, "", FILE, **shell("2>/dev/full")
    ),
    *(
        Case(f"output not UTF-8: {argv[0]}", argv, 0, says, {"r.jsonl": records}, leaves=["o*"])
        for argv, says, records in (
            ([*REPORT, BYTES], "report", FEW),
            ([*REPORT, BYTES], "6 hosts", FLEET),
            (["store", "append", BYTES, "r.jsonl"], "records", VM.read_bytes()),
        )
    ),
    *(
        Case(f"control characters, {says}", [*REPORT, "out"], 0, says, {"r.jsonl": records}, leaves=OUT)
        for says, records in (("report", RAW_FEW), ("6 hosts", FLEET))
    ),
    *(Case(*row) for row in PLAIN),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_hostile_encodings(case, hostile):
    hostile(case)


def _secret(folder):
    """Creates a private folder next to one with records, and a private file."""
    for name in ("e/open", "e/closed"):
        (folder / name).mkdir(parents=True)
        (folder / name / "records.jsonl").write_text(FEW)
    (folder / "e/closed").chmod(0o700)
    (folder / "r.jsonl").write_bytes(VM.read_bytes())
    (folder / "r.jsonl").chmod(0o600)


DENIED = "e/closed.*Permission denied"
#: Name, arguments and pattern of what another user gets, who has no capabilities.
ROWS = [
    ("closed folder", ["validate", "--system", "local", "e/closed"], DENIED),
    ("report of a closed folder below, home of root", ["report", "e", "-o", "out"], DENIED),
    ("append of a closed folder below", ["store", "append", "st", "e"], DENIED),
    ("file in a closed folder", ["validate", "--system", "local", "e/closed/records.jsonl"], DENIED),
    (
        *("closed folder below and unreadable records", ["validate", "--system", "local", "e", "r.jsonl"]),
        [f"left out: {DENIED}", "left out: r.jsonl.*Permission denied", "verdict vm suspect"],
    ),
]
USER = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all")
NOBODY = [
    Case(name, argv, 2, says, _secret, OUT, environment={"HOME": "/root"}, process=True, prefix=USER)
    for name, argv, says in ROWS
]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("case", NOBODY, ids=str)
def test_hostile_permissions(case, monkeypatch, capfd):
    # pytest's folders are closed to other users.
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    place.chmod(0o777)
    before = os.umask(0)
    try:
        check(case, place, monkeypatch, capfd)
    finally:
        os.umask(before)
        monkeypatch.undo()
        shutil.rmtree(place)
