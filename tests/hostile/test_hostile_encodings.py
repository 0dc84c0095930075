"""Hostile input: encodings, names that are not UTF-8, closed descriptors, and folders without permission."""

import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from hostile import VM, Case, check

UMLAUT = "".join(
    json.dumps({**json.loads(line), "host": "gr\u00fcn\u4e2d"}) + "\n" for line in VM.read_text().splitlines()
)
RAW = "".join(
    json.dumps({**json.loads(line), "host": "a\x1b[31m\a\nb"}) + "\n" for line in VM.read_text().splitlines()
)
#: Checks of which a report is drawn quickly.
FEW_CHECKS = ("topology", "contention")
FLEET = "".join(
    json.dumps({**json.loads(line), "host": f"n\x1b[3{i}m\a\nb"}) + "\n"
    for line in VM.read_text().splitlines()
    for i in range(6)
)
#: Records of two checks, for a report that is drawn quickly.
FEW = "".join(line + "\n" for line in VM.read_text().splitlines() if json.loads(line)["check"] in FEW_CHECKS)
RAW_FEW = "".join(line + "\n" for line in RAW.splitlines() if json.loads(line)["check"] in FEW_CHECKS)
CLOSED = 'exec "$@" '
VALIDATE = ("validate", "--strict", "--system", "local", "r.jsonl")
BYTES = os.fsdecode(b"o\xff")


def at_bytes(folder):
    (folder / BYTES).mkdir()
    (folder / BYTES / "records.jsonl").write_bytes(VM.read_bytes())


CASES = [
    *(
        Case(f"{encoding} {stream}", [*VALIDATE, *more], 3, says, {"r.jsonl": UMLAUT}, encoding=encoding)
        for encoding in ("ascii", "latin-1", "utf-8", "cp1252:strict")
        for stream, more, says in (("text", [], "gr"), ("JSON", ["--json"], r"gr\\u00fcn"))
    ),
    Case(
        *("ascii by the environment", VALIDATE, 3, "gr", {"r.jsonl": UMLAUT}),
        environment={"PYTHONIOENCODING": "ascii"},
        process=True,
    ),
    Case(
        "C locale",
        VALIDATE,
        3,
        "gr",
        {"r.jsonl": UMLAUT},
        environment={"LC_ALL": "C", "PYTHONUTF8": "0"},
        process=True,
    ),
    *(
        Case(f"help in {encoding}: {command}", [command, "--help"], 0, "usage", encoding=encoding)
        for encoding in ("ascii", "latin-1")
        for command in ("advise", "campaign", "report", "run")
    ),
    *(
        Case(
            f"{what} {closed}",
            argv,
            status,
            "",
            {"r.jsonl": FEW},
            process=True,
            prefix=("sh", "-c", CLOSED + closed, "sh"),
            leaves=["out", "out/*"],
        )
        # Output that is lost is an error, after all else that a command does.
        for what, argv, status, closings in (
            ("topology", ["topology"], 0, ("2>&-", "<&-")),
            ("topology", ["topology"], 2, (">&-", ">&- 2>&- <&-")),
            ("validate", VALIDATE, 2, (">&- 2>&- <&-",)),
            ("report", ["report", "r.jsonl", "-o", "out"], 2, (">&- 2>&- <&-",)),
        )
        for closed in closings
    ),
    Case(
        "full standard output",
        ["topology"],
        2,
        "No space left",
        process=True,
        prefix=("sh", "-c", CLOSED + ">/dev/full", "sh"),
    ),
    Case(
        "full standard error",
        ["validate", "--system", "nosuch", "r.jsonl"],
        2,
        "",
        {"r.jsonl": VM.read_bytes()},
        process=True,
        prefix=("sh", "-c", CLOSED + "2>/dev/full", "sh"),
    ),
    Case(
        "output not UTF-8",
        ["report", "r.jsonl", "-o", BYTES],
        0,
        "report",
        {"r.jsonl": FEW},
        leaves=["o*"],
    ),
    Case(
        "fleet's output not UTF-8",
        ["report", "r.jsonl", "-o", BYTES],
        0,
        "report",
        {"r.jsonl": FLEET},
        leaves=["o*"],
    ),
    Case(
        "store not UTF-8",
        ["store", "append", BYTES, "r.jsonl"],
        0,
        "records",
        {"r.jsonl": VM.read_bytes()},
        leaves=["o*"],
    ),
    Case("lines in a folder not UTF-8", ["validate", "--system", "local", BYTES], 0, "undecided", at_bytes),
    Case("no such file, not UTF-8", ["report", BYTES, "-o", "out"], 2, "no such file"),
    Case("system not UTF-8", ["validate", "--system", BYTES, "r.jsonl"], 2, "", {"r.jsonl": VM.read_bytes()}),
    Case("control characters in a host", VALIDATE, 3, r"a\\x1b\[31m\\x07\\nb", {"r.jsonl": RAW}),
    Case("control characters in a host, JSON", [*VALIDATE, "--json"], 3, r"a\\u001b", {"r.jsonl": RAW}),
    Case(
        "control characters in a host, report",
        ["report", "r.jsonl", "-o", "out"],
        0,
        "report",
        {"r.jsonl": RAW_FEW},
        leaves=["out", "out/*"],
    ),
    Case(
        "control characters in a fleet",
        ["report", "r.jsonl", "-o", "out"],
        0,
        "6 hosts",
        {"r.jsonl": FLEET},
        leaves=["out", "out/*"],
    ),
    Case("control characters in a fleet, verdicts", VALIDATE, 0, r"n\\x1b\[30m\\x07\\nb pass", {"r.jsonl": FLEET}),
    Case(
        "control characters in an argument",
        ["validate", "--system", "a\x1b[31m\nb", "r.jsonl"],
        2,
        r"a\\x1b",
        {"r.jsonl": VM.read_bytes()},
    ),
    Case(
        "control characters in an option",
        ["validate", "--syst\x1bem", "a", "r.jsonl"],
        2,
        "",
        {"r.jsonl": VM.read_bytes()},
    ),
    Case("control characters in a command", ["vali\x1bdate\n"], 2, "no command"),
    Case("control characters in a file's name", ["report", "a\x1b\nb", "-o", "out"], 2, r"a\\x1b\\nb"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_hostile_encodings(case, hostile):
    hostile(case)


def _nobody(name, argv, status, says, make=None, **more):
    """Returns a case that runs as another user, without capabilities."""
    prefix = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all")
    return Case(
        name, argv, status, says, make or {"r.jsonl": VM.read_bytes()}, process=True, prefix=prefix, **more
    )


def _closed(folder):
    """Makes a folder that only its owner may read, beside one with records."""
    for name in ("e/open", "e/closed"):
        (folder / name).mkdir(parents=True)
        (folder / name / "records.jsonl").write_text(FEW)
    (folder / "e/closed").chmod(0o700)


def _secret(folder):
    _closed(folder)
    (folder / "r.jsonl").write_bytes(VM.read_bytes())
    (folder / "r.jsonl").chmod(0o600)


NOBODY = [
    _nobody(
        "closed folder", ["validate", "--system", "local", "e/closed"], 2, "e/closed.*Permission denied", _closed
    ),
    _nobody(
        "report of a closed folder below, home of root",
        ["report", "e", "-o", "out"],
        2,
        "e/closed.*Permission denied",
        _closed,
        environment={"HOME": "/root"},
        leaves=["out", "out/*"],
    ),
    _nobody(
        "append of a closed folder below",
        ["store", "append", "st", "e"],
        2,
        "e/closed.*Permission denied",
        _closed,
    ),
    _nobody(
        "file in a closed folder",
        ["validate", "--system", "local", "e/closed/records.jsonl"],
        2,
        "e/closed.*Permission denied",
        _closed,
    ),
    _nobody(
        "closed folder below and unreadable records",
        ["validate", "--system", "local", "e", "r.jsonl"],
        2,
        ["left out: e/closed.*Permission denied", "left out: r.jsonl.*Permission denied", "verdict vm suspect"],
        _secret,
    ),
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
