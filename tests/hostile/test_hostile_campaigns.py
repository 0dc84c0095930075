"""Hostile input: damaged campaign folders, and unexpected answers of Slurm."""

import functools
import json
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from factories.processes import write_program
from firsttouch.campaign import campaigns
from firsttouch.campaign.journal import Entry, note, now
from firsttouch.records import schema
from firsttouch.records.schema import Record
from firsttouch.systems import draft
from hostile import Case

COLLECT = ["campaign", "collect", "./c"]
#: The files that collecting writes.
REPORT = ["c/report", "c/reports", "c/reports/*"]
DEEP = "[" * 5000 + "]" * 5000


@functools.cache
def _planned():
    fields = {"system": "amd-opteron", "dataset": "lambda", "aligners": (), "repetitions": 1}
    return campaigns.plan("characterize", Path("c"), **fields, only=["topology", "latency-0"])


def record(host="n1", value=8.0):
    return Record("topology", "pus", "1", "higher", (value,), host=host, system="amd-opteron")


def campaign(folder):
    """Makes a complete campaign of one host in the folder c."""
    created = campaigns.create(replace(_planned(), folder=folder / "c"))
    journal = created.host("n1")
    journal.open()
    for step in created.steps:
        begin, end = journal.add([record(), record(value=9.0)])
        for state, where in (("began", (0, 0)), ("measured", (begin, end))):
            journal.write(Entry(step.name, state, now(), "n1", "7", "7", "", 1.0, *where))
    note(created.folder, "7", 1, ["n1"])
    return created


def damaged(name, content):
    """Returns a maker of a campaign in which one file has another content, or is missing (None)."""

    def make(folder):
        campaign(folder)
        file = folder / "c" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            file.unlink()
        else:
            file.write_bytes(content.encode() if isinstance(content, str) else content)

    return make


def changed(name, **values):
    """Returns a maker of a campaign that changes some keys of a JSON or JSON-lines file."""

    def make(folder):
        campaign(folder)
        file = folder / "c" / name
        if file.suffix == ".jsonl":
            lines = [json.dumps({**json.loads(line), **values}) for line in file.read_text().splitlines()]
            file.write_text("\n".join(lines) + "\n")
        else:
            file.write_text(json.dumps({**json.loads(file.read_text()), **values}))

    return make


def cut(name, size):
    def make(folder):
        campaign(folder)
        os.truncate(folder / "c" / name, size)

    return make


def foreign(*names):
    """Returns a maker of a campaign whose hosts' folders have these names."""

    def make(folder):
        campaign(folder)
        for name in names:
            (Path(os.fsdecode(os.fsencode(folder))) / "c" / "hosts" / os.fsdecode(name)).mkdir()

    return make


def beside_another(folder):
    campaign(folder)
    (folder / "d").mkdir()
    (folder / "d/campaign.json").write_text("{")


def run_of(kind, folder):
    return ["campaign", "run", kind, "--campaign", folder, "--step"]


STEP = {"name": "topology", "argv": ["measure", "topology"]}
NOT_A_CAMPAIGN = {
    "empty": damaged("campaign.json", ""),
    "deep": damaged("campaign.json", DEEP),
    "another schema": changed("campaign.json", schema=9),
    "an unknown kind": changed("campaign.json", kind="destroy"),
    "no steps": changed("campaign.json", steps=[]),
    "a step without argv": changed("campaign.json", steps=[{**STEP, "argv": []}]),
    "a step that leaves the folder": changed("campaign.json", steps=[{**STEP, "name": "../../x"}]),
    "a step twice": changed("campaign.json", steps=[STEP, STEP]),
    "an unknown key": changed("campaign.json", colour="red"),
}
BAD_LINE = {
    "not JSON": damaged("hosts/n1/steps.jsonl", '{"no": \n'),
    "deep": damaged("hosts/n1/steps.jsonl", DEEP + "\n"),
    "begin behind the end": changed("hosts/n1/steps.jsonl", begin=10, end=5),
    "begin before the file": changed("hosts/n1/steps.jsonl", begin=-5, end=5),
    "an unknown state": changed("hosts/n1/steps.jsonl", state="great"),
    "a job without a number": changed("hosts/n1/steps.jsonl", job="7; id"),
}
GONE = {
    "removed": damaged("hosts/n1/records.jsonl", None),
    "cut": cut("hosts/n1/records.jsonl", 100),
    "not records": damaged("hosts/n1/records.jsonl", "{}\n" * 2000),
    "deep": damaged("hosts/n1/records.jsonl", DEEP),
}
NOT_A_SUBMISSION = {
    "not JSON": damaged("submissions/7.json", "{"),
    "deep": damaged("submissions/7.json", DEEP),
    "a job without a number": changed("submissions/7.named.json", job="ALL"),
    "hosts that are numbers": changed("submissions/7.named.json", hosts=[5]),
}
CASES = [
    *(
        Case(f"campaign {n}", COLLECT, 2, r"c/campaign\.json: not a campaign", m)
        for n, m in NOT_A_CAMPAIGN.items()
    ),
    *(Case(f"steps {n}", COLLECT, 1, r"n1/steps\.jsonl:1: ", m, leaves=REPORT) for n, m in BAD_LINE.items()),
    *(Case(f"records {n}", COLLECT, 1, r"records\.jsonl", m, leaves=REPORT) for n, m in GONE.items()),
    *(Case(f"submission {n}", COLLECT, 1, r"7.*json: ", m, leaves=REPORT) for n, m in NOT_A_SUBMISSION.items()),
    Case("host that is bytes", COLLECT, 1, r"n\\udcff", foreign(b"n\xff"), leaves=REPORT),
    Case("host that is a file", COLLECT, 0, "2 of 2", damaged("hosts/n2", "x"), leaves=REPORT),
    Case(
        *("one damaged campaign of two", ["report", ".", "-o", "../results/out"], 2),
        *(r"left out: (?:.*)d/campaign\.json: not a campaign", beside_another),
        leaves=["../results/out", "../results/out/*", "../home/*"],
    ),
    Case("no campaign", ["campaign", "collect", "nothing"], 2, "no campaign"),
    Case("a name that leaves the folder", ["campaign", "collect", ".."], 2, "not a name for a campaign"),
    Case("a folder that is bytes", ["campaign", "collect", os.fsdecode(b"./\xff")], 2, "no campaign|UTF-8"),
    Case("a new folder that is bytes", [*run_of("validate", os.fsdecode(b"./\xff")), "topology"], 2, "UTF-8"),
    Case(
        *("an unknown step of a campaign", [*run_of("characterize", "./c"), "nonsense", "--dry-run"], 2),
        *("no step 'nonsense': there are topology, latency-0", campaign),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_hostile_campaigns(case, hostile):
    hostile(case)


# ---------------------------------------------------------------- Slurm's answers
SUBMIT = ["campaign", "submit", "characterize", "--system=amd-opteron", "--step=topology", "--campaign=./c"]
NEW = ["c", "c/*"]


def slurm(**scripts):
    """Returns a maker of scripts in bin that replace commands of Slurm."""

    def make(folder):
        (folder / "bin").mkdir()
        for name, script in {"sinfo": "true", "squeue": "true", "sacct": "true", **scripts}.items():
            file = folder / "bin" / name
            write_program(file, f"{script}")

    return make


def with_slurm(tool, script):
    """Returns a maker of a campaign and of this script in place of a command of Slurm."""
    return lambda folder: (campaign(folder), slurm(**{tool: script})(folder))


def hosts(given):
    return [*SUBMIT, "--hosts", given]


def draining(name, *, dry_run):
    """Returns a case with a failing record of this host, and a Slurm that would drain any host."""

    def make(folder):
        slurm(scontrol='case "$1" in update) touch updated;; *) echo "NodeName=n1 State=IDLE";; esac')(folder)
        text = draft.draft_host("larger").replace("references: []", "references:\n  - " + REFERENCE)
        (folder.parent / "systems" / "larger.yaml").write_text(text)
        fields = {"host": name, "system": "larger"}
        times = [f"2026-01-0{i}T00:00:00Z" for i in range(1, 9)]
        few = [Record("topology", "pus", "1", "higher", (2.0,), **fields, time=time) for time in times]
        schema.append(folder / "r.jsonl", few)

    argv = ["validate", "--system", "larger", "r.jsonl", "--drain", *(["--dry-run"] if dry_run else [])]
    return Case(f"drain {name!r} {dry_run}", argv, 2, "not the name of one host|not a record", make)


REFERENCE = "{check: topology, source: order, metric: pus, value: 4096, tolerance: {lower: -3 %}}"
SLURM = [
    *(draining(name, dry_run=d) for name in ("ALL", "n[1-1000]", "n1;id") for d in (True, False)),
    Case("hosts in a bad expression", hosts("n[1-"), 2, "--hosts", slurm()),
    *(
        Case(f"sbatch, {name}", hosts(given), 1, says, slurm(sbatch=script), leaves=NEW)
        for name, given, says, script in (
            (
                *("that refuses all", "n[1-2]", r"no job was submitted: n\[1-2\]: sbatch: no partition"),
                "echo no partition >&2; exit 1",
            ),
            (
                *("that refuses one", "n[1-2]", "n2: sbatch: invalid node"),
                'case "$*" in *=n2*) echo invalid node >&2; exit 1;; *) echo 7;; esac',
            ),
            ("that says nothing", "n1", "sbatch", "true"),
            ("that says rubbish", "n1", "sbatch", "echo hello"),
            ("that says bytes", "n1", "sbatch", r"printf '\377\376\n'"),
        )
    ),
    *(
        Case(f"{tool} that says {text}", COLLECT, 0, "2 of 2", with_slurm(tool, script), leaves=REPORT)
        for tool in ("sacct", "squeue")
        for text, script in (
            ("rubbish", "echo '7|7|||'; echo '|||||||'; echo x"),
            ("bytes", r"printf '7|7|\377|0:0|n1|\n'"),
            ("an error", "echo no >&2; exit 1"),
        )
    ),
]


@pytest.mark.parametrize("case", SLURM, ids=str)
def test_hostile_slurm(case, hostile, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}/case/bin:{os.environ['PATH']}")
    hostile(case)


def test_no_slurm_is_one_line(hostile, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}/case")
    hostile(Case("no Slurm", hosts("n1"), 3, "no Slurm here.*campaign run characterize"))
