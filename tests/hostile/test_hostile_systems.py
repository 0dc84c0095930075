"""Hostile input: files of systems, records from which references are learnt, and the options of both."""

import json

import pytest

from hostile import VM, Case

SYSTEM = """\
name: lab
description: x
hostnames: [x]
facts: {source: x, processor: x, packages: 1, numa_nodes: 1, cores_per_numa_node: 2, threads_per_core: 1,
  memory_per_numa_node: 4 GiB}
partitions: [{name: p, scheduler: local}]
references:
  - {check: bandwidth, metric: copy_bandwidth, value: 10 GB/s, tolerance: {lower: -10 %}, source: x}
"""
RECORD = {
    **next(r for r in map(json.loads, VM.read_text().splitlines()) if r["check"] == "bandwidth"),
    "system": "lab",
}


def lines(hosts=6, **fields):
    """Returns a record of each host as JSON lines."""
    return "".join(json.dumps({**RECORD, "host": f"n{i}", **fields}) + "\n" for i in range(hosts))


def changed(old, new):
    assert old in SYSTEM
    return SYSTEM.replace(old, new)


#: Name -> an invalid system file, and a pattern of the message.
WRONG = {
    "nested": ("a: " + "[" * 2000 + "]" * 2000, "nested too deeply"),
    "a tag": (
        changed("description: x", "description: !!python/object/apply:os.system [ls]"),
        "lab.yaml:2: the YAML tag",
    ),
    "a value of nothing": (changed("value: 10 GB/s", "value: nan GB/s"), "lab.yaml:8"),
    "references of no list": (SYSTEM[: SYSTEM.index("references")] + "references: 5\n", "references"),
}
#: Name -> records from which nothing is learnt, and the reason.
NOTHING_LEARNT = {
    "few hosts": (lines(3), "measured on 3 hosts, 4 are needed"),
    "values of 0": (lines(samples=[0.0], value=0.0), "not above 0"),
    "negative values": (lines(samples=[-1.0], value=-1.0), "not above 0|-1"),
    "invalid repetitions": (lines(status="invalid", reason="x"), "nothing was learnt"),
    "an emulator's": (lines(software={"emulator": "QEMU"}), "nothing was learnt"),
    "an unknown metric": (lines(metric="speed"), "nothing was learnt"),
    "another system's": (lines(system="other"), "no record of system lab"),
    "no record": ("", "no record"),
}
#: Name -> refused options of baseline, and a pattern of the message.
OPTIONS = {
    **{f"loss {loss!r}": (["--loss", loss], "not a loss from 0.1 to 50%") for loss in ("0", "nan", "99", "x")},
    **{f"hosts {hosts!r}": (["--hosts", hosts], "hosts?") for hosts in ("", "n[1", "n[1-99999999999]", "m1")},
    "an output that is a folder": (["-o", "."], "folder|directory|written"),
    "an output in no folder": (["-o", "none/lab.yaml"], "none"),
    "an output that is the records": (["-o", "r.jsonl"], "r.jsonl"),
}


def argv(command, *options):
    return [command, "--system", "./lab.yaml", "r.jsonl", *options]


CASES = [
    *(
        Case(f"{command}: {name}", argv(command), 2, says, {"lab.yaml": text, "r.jsonl": lines()})
        for name, (text, says) in WRONG.items()
        for command in ("validate", "baseline")
        if (command, name) != ("baseline", "nested")  # takes seconds, in the reader that both have
    ),
    *(
        Case(f"baseline of {name}", argv("baseline"), 2, says, {"lab.yaml": SYSTEM, "r.jsonl": text})
        for name, (text, says) in NOTHING_LEARNT.items()
    ),
    *(
        Case(
            f"baseline with {name}", argv("baseline", *options), 2, says, {"lab.yaml": SYSTEM, "r.jsonl": lines()}
        )
        for name, (options, says) in OPTIONS.items()
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_hostile_systems(case, hostile):
    hostile(case)
