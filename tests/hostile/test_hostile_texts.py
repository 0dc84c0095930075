"""Hostile input: texts of records that a terminal would obey, or that would forge a line of output."""

import json
from functools import cache

import pytest
from msgspec.structs import replace

from factories.host_records import Machine
from firsttouch.records import schema
from firsttouch.records.schema import Record
from hostile import VM, Case

#: Hostile texts in records, and the beginning of the line that they would forge.
FORGED = "verdict n1 pass"
HOSTILE = f"x\x1b]0;title\a\x9b2J\r\n{FORGED}\n"


#: Commands that the log of a CI job would execute.
CI = "::error file=a::x ::stop-commands::t ##[error]x ##vso[task.complete]x\t::"


def texts(value, hostile, ending=""):
    """Return *value* with each text in it between *hostile* ones; settings differ by their *ending*."""
    begin = hostile if hostile.startswith(CI) else ""
    if isinstance(value, str):
        return begin + value + hostile
    if isinstance(value, dict):
        return {name: f"{begin}{inner}{hostile}{ending}" for name, inner in value.items()}
    return value


@cache
def lines(hosts, hostile=HOSTILE, system="local"):
    """Return the records of that many hosts; all texts except the names of cases and systems are *hostile*."""
    machine = Machine(2, 4)
    measured = [*schema.read(VM), *machine.scaling(), *machine.placement()]
    settings = {"cpu.model": "", "kernel.command_line": "a b", "memory.modules.A": "8 GiB"}
    measured.append(Record("configuration", "settings", "1", "neither", (3,), {"settings": settings}))
    records = [
        replace(
            record,
            host=texts(f"n{number}", hostile),
            system=system,
            partition=hostile,
            software=texts(dict(record.software), hostile),
            samples=tuple(s * (1 + number / 3) for s in record.samples),
            parameters={
                name: value
                if name in {"kernel", "program", "policy"}
                else texts(value, hostile, "abc"[number % 3])
                for name, value in record.parameters.items()
            },
        )
        for number in range(hosts)
        for record in measured
    ]
    records += [replace(r, status="invalid", reason=hostile) for r in records[:3]]
    return "".join(json.dumps(r.to_dict()) + "\n" for r in records)


#: Name -> words of a command, how many hosts there are, and its exit status.
COMMANDS = {
    "report of a host": (["report", "r.jsonl", "-o", "out"], 1, 0),
    "report of a fleet": (["report", "r.jsonl", "-o", "out"], 7, 0),
    "report of a fleet with pages": (["report", "r.jsonl", "-o", "out", "--details", "1"], 5, 0),
    "comparison": (["report", "--compare", "r.jsonl", "s.jsonl", "-o", "out"], 5, 0),
    # Three records are there twice, valid and not: the worse one counts.
    "verdict of a host": (["validate", "--system", "local", "r.jsonl"], 1, 1),
    "verdicts": (["validate", "--system", "local", "r.jsonl"], 7, 1),
    "verdict explained": (["validate", "--system", "local", "r.jsonl", "--explain", f"n0{HOSTILE}"], 3, 1),
    "no such host": (["validate", "--system", "local", "r.jsonl", "--explain", "n9"], 1, 2),
    "another system": (["validate", "--system", "amd-opteron", "r.jsonl"], 1, 2),
}


@pytest.mark.parametrize(("argv", "hosts", "status"), COMMANDS.values(), ids=COMMANDS)
def test_no_text_of_a_record_reaches_a_terminal_or_forges_a_line(hostile, argv, hosts, status):
    make = {"r.jsonl": lines(hosts), "s.jsonl": lines(hosts)}
    outcome = hostile(Case("texts", argv, status, "", make, ["out", "out/*"]))
    printed = (outcome.out + outcome.err).splitlines()
    assert printed
    assert not [line for line in printed if line.startswith(FORGED)]


@pytest.mark.parametrize(("argv", "hosts", "status"), COMMANDS.values(), ids=COMMANDS)
def test_no_text_of_a_record_is_a_command_to_a_ci_service(hostile, argv, hosts, status):
    records = lines(hosts, CI, "local" if argv[0] != "report" else f"{CI} local")
    words = [f"{CI}{word.removesuffix(HOSTILE)}{CI}" if word.endswith(HOSTILE) else word for word in argv]
    outcome = hostile(Case("texts", words, status, "", {"r.jsonl": records, "s.jsonl": records}, ["out", "out/*"]))
    printed = (outcome.out + outcome.err).splitlines()
    assert printed
    assert not [line for line in printed if line.lstrip().startswith("::") or "##[" in line or "##vso[" in line]
