"""Hostile input: arguments of the commands that read records."""

import json
import os
import stat

import pytest

from firsttouch import paths
from firsttouch.cli import COMMANDS
from hostile import VM, Case

INPUT = {"r.jsonl": VM.read_bytes(), "notes.txt": "mine\n", "full/notes.txt": "mine\n"}
VALIDATE = ("validate", "--system", "local", "r.jsonl")
REPORT = ("report", "r.jsonl", "-o")
OUT = ["out", "out/*"]
EXPECTING = ("run", "1x-default", "--aligner=bwa-mem", "--expect-sha256")
PIPES = {"FIRSTTOUCH_SYSTEMS": ".", "FIRSTTOUCH_DATASETS": ".", "XDG_CONFIG_HOME": None}


def checked_by(regex):
    """The file of a check with a regular expression."""
    return {"c.yaml": json.dumps({"program": ["true"], "metric": "rate", "unit": "GB/s", "regex": regex})}


def pipes(folder):
    """Make pipes, and a socket, among data files of all kinds."""
    (folder / "r.jsonl").write_bytes(INPUT["r.jsonl"])
    user = folder.parent / "home" / ".config" / "firsttouch"
    (user / "aligners").mkdir(parents=True)
    os.mkfifo(user / "aligners" / "p.toml")
    os.mkfifo(user / "policies.toml")
    os.mkfifo(folder / "p.yaml")
    os.mkfifo(folder / "p.toml")
    os.mknod(folder / "s.yaml", 0o600 | stat.S_IFSOCK)


CASES = [
    Case("unknown command", ["measure-all"], 2, "no command"),
    *(Case(f"{command}: unknown option", [command, "--nosuch"], 2, "") for command in COMMANDS),
    *(Case(f"{command}: help", [command, "--help"], 0, "usage") for command in COMMANDS),
    *(
        Case(f"{command}: no records", [command, *more], 2, "required")
        for command, *more in (
            ("validate", "--system", "local"),
            ("validate", "r.jsonl"),
            ("report", "-o", "out"),
            ("report", "r.jsonl"),
            ("store", "append", "st"),
        )
    ),
    *(
        Case(f"validate: system {system!r:.20}", ["validate", "--system", system, "r.jsonl"], 2, "", INPUT)
        for system in ("", "../local", "a b", "local\n", "x" * 5000)
    ),
    *(
        Case(f"{argv[0]}: no such {path!r:.20}", [*argv, path], 2, "no such file|too long|not permitted|null")
        for path in ("nowhere", "r.jsonl/x", "a/" * 3000)
        for argv in (("validate", "--system", "local"), ("report", "-o", "out"), ("store", "append", "st"))
    ),
    *(Case(f"report: details {n}", [*REPORT, "out", "--details", n], 2, "details", INPUT) for n in ("-1", "x")),
    *(
        Case(f"no path: {' '.join(argv)}", argv, 2, f"argument {name}: '' is not a path", INPUT)
        for name, argv in (
            ("STORE", ["store", "append", "", "r.jsonl"]),
            ("RECORDS_OR_DIR", ["validate", "--system", "local", "r.jsonl", ""]),
            ("-o/--output", [*REPORT, ""]),
            ("--xml", ["plan", "--xml", ""]),
            ("--fsroot", ["topology", "--fsroot="]),
            ("--records", ["run", "--records", "", "--", "true"]),
            ("--scratch", ["run", "--scratch", "", "--", "bwa", "mem", "g", "r.fq"]),
            ("--index", ["plan", "--index", ""]),
            ("DIR", ["init", ""]),
        )
    ),
    Case("report: onto a file", [*REPORT, "notes.txt"], 2, "not a folder", INPUT),
    Case("report: onto its records", [*REPORT, "r.jsonl"], 2, "would overwrite the input", INPUT),
    Case("report: onto a folder with more", [*REPORT, "full"], 2, "not an earlier report", INPUT),
    Case("report: onto the working folder", [*REPORT, "."], 2, "holds an input", INPUT),
    Case("report: onto a device", [*REPORT, "/dev/null"], 2, "not a folder", INPUT),
    Case("report: a name that is too long", [*REPORT, "x" * 300], 2, "too long", INPUT),
    Case("report: compare one", [*REPORT, "out", "--compare"], 2, "takes two", INPUT),
    Case("report: other system", [*REPORT, "out", "--system", "amd-opteron"], 2, "no record of system", INPUT),
    Case("report: not XML", [*REPORT, "out", "--xml", "notes.txt"], 2, "notes.txt", INPUT),
    Case("report: notes as records", ["report", "notes.txt", "-o", "out"], 2, "notes.txt:1: not JSON", INPUT),
    *(
        Case(f"run: {regex}", ["run", "--check", "c.yaml"], 2, "not a regular expr", checked_by(regex))
        for regex in ("(", "*", "\\")
    ),
    Case(
        *("report: a link to itself", ["report", "r.fq", "-o", "loop"], 2, "a symbolic link that leads to itself"),
        lambda f: ((f / "loop").symlink_to("loop"), (f / "r.fq").write_text("@r\nAC\n+\nII\n")),
    ),
    *(
        Case(f"{' '.join(argv)}: a pipe", argv, status, says, pipes, environment=PIPES)
        for argv, status, says in (
            (["system", "list"], 2, "p.yaml: a pipe, not a file"),
            (["validate", "--system", "p", "r.jsonl"], 2, "p.yaml: a pipe, not a file"),
            (["data", "list"], 2, "p.toml: a pipe, not a file"),
            (["system", "aligners"], 2, "p.toml: a pipe, not a file"),
            (["plan", "--aligner=bwa-mem"], 0, "policies.toml: a pipe, not a file"),
        )
    ),
    *(
        Case(f"run: expected checksum {value:.70}", [*EXPECTING, value], 2, "--expect-sha256.* is not a SHA-256")
        for value in ("", "1e400", "0" * 63, "g" * 64, "0" * 64 + ",", f"{'0' * 64},{'0' * 64},-1,0", "x,1,0")
    ),
    *(
        Case(f"run: expected {value[60:]}", [*EXPECTING, value], 2, "--index, --reads and --output are needed")
        for value in ("0" * 64, "aF" * 32, f"{'0' * 64},{'A' * 64},10,9")
    ),
    Case("validate: NUL in a path", ["validate", "--system", "local", "a\0b"], 2, "", INPUT),
    Case("store: append to nowhere", ["store", "append", "/proc/st", "r.jsonl"], 2, "/proc", INPUT),
    *(
        Case(f"systems: {place}", VALIDATE, 2, "no such folder", INPUT, environment={"FIRSTTOUCH_SYSTEMS": place})
        for place in ("/nonexistent", "r.jsonl")
    ),
    Case("TMPDIR is gone", [*REPORT, "out"], 0, "report", INPUT, OUT, environment={"TMPDIR": "/nonexistent"}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_hostile_arguments(case, hostile):
    hostile(case)


@pytest.mark.parametrize(("name", "kind"), [("/dev/zero", "device"), ("p.yaml", "pipe"), ("s.yaml", "socket")])
def test_what_is_no_file_is_no_system(run_cli, tmp_path, monkeypatch, name, kind):
    (tmp_path / "case").mkdir()
    pipes(tmp_path / "case")
    monkeypatch.chdir(tmp_path / "case")
    assert run_cli("system", "check", name) == (2, "", f"firsttouch: {name}: a {kind}, not a file\n")


def test_a_baseline_of_a_system_without_a_file(hostile, tmp_path_factory, monkeypatch):
    """The checkout's folder has a file of this host once the suite has run there."""
    monkeypatch.setitem(paths._BUILT_IN, "systems", tmp_path_factory.mktemp("systems"))
    hostile(Case("baseline: no file", ["baseline", "--system", "local", "r.jsonl"], 3, "has no file", INPUT))
