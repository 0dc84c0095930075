# SPDX-License-Identifier: Apache-2.0
"""A step of a campaign that proves a defect of the host is a finding: its records are kept, and the host fails."""

import json
import subprocess

import pytest

from factories.processes import write_program
from firsttouch.campaign import campaigns
from firsttouch.host import topology
from firsttouch.systems import draft

PROBE = topology.probe_program()
#: How the probe reports a defect: a wrong answer of a PU, and a slow core.
DEFECTS = {"correctness": "wrong_answers", "cores": "slow_cores"}

#: How the step ends after a defect -> its state.
STATES = {"exit 0": "found", "kill -SEGV $$": "failed"}


@pytest.fixture
def faulty(tmp_path):
    """Return a function that writes a probe which reports one defect, as PU 0 has it, and then ends as asked."""

    def write(aspect, ending):
        done = subprocess.run([PROBE, aspect, "--jsonl", "--sanity"], capture_output=True, text=True, check=True)
        *lines, end = map(json.loads, done.stdout.splitlines())
        defect = next(line for line in lines if line.get("metric") == DEFECTS[aspect])
        defect |= {"value": 1, "samples": [1] * len(defect["samples"]), "pu": min(topology.load().allowed_pus)}
        lines += [end] if ending == "exit 0" else []
        (tmp_path / "printed").write_text("".join(json.dumps(line) + "\n" for line in lines))
        file = tmp_path / "probe"
        printing = f"cat {tmp_path}/printed; {ending}"
        write_program(file, f'if [ "$1" = {aspect} ]; then {printing}; fi\nexec {PROBE} "$@"')
        (tmp_path / "lab.yaml").write_text(draft.draft_host("lab"))
        folders = {"FIRSTTOUCH_SYSTEMS": str(tmp_path), "FIRSTTOUCH_OUT": str(tmp_path / "out")}
        return {**folders, "FIRSTTOUCH_PROBE": str(file), "FIRSTTOUCH_VERDICTS": str(tmp_path / "verdicts")}

    return write


def run(firsttouch, kind, aspect, environment):
    """Run two steps of a campaign on this host, the second of which has the defect."""
    steps = ("--step", "topology", "--step", aspect)
    argv = ("campaign", "run", kind, "--system", "lab", "--campaign", "c", *steps)
    return firsttouch(*argv, **environment, FIRSTTOUCH_EFFORT="smoke")


def last_entry(tmp_path, aspect):
    (journal,) = campaigns.read(tmp_path / "out" / "campaigns" / "c").hosts()
    return [entry for entry in journal.entries() if entry.step == aspect][-1]


@pytest.mark.parametrize("ending", STATES)
@pytest.mark.parametrize("aspect", DEFECTS)
def test_a_defect_that_a_step_measures_fails_the_host(firsttouch, tmp_path, faulty, aspect, ending):
    state = STATES[ending]
    done = run(firsttouch, "validate", aspect, faulty(aspect, ending))
    assert done.returncode == 1, done.stderr
    entry = last_entry(tmp_path, aspect)
    assert (entry.state, entry.end > entry.begin) == (state, True)
    assert ("which fails a host" in entry.reason) == (state == "found")
    (verdict,) = (line for line in done.stdout.splitlines() if line.startswith("verdict "))
    assert " fail: " in verdict
    missing = json.loads((tmp_path / "out" / "campaigns" / "c" / "report" / "state.json").read_text())["missing"]
    assert bool(missing) == (state == "failed")
    assert missing or "missing" not in verdict
    (file,) = (f for f in (tmp_path / "verdicts").iterdir() if f.is_file())
    assert file.read_text().startswith("fail ")


def test_a_campaign_without_verdicts_lists_what_it_found(firsttouch, tmp_path, faulty):
    done = run(firsttouch, "characterize", "cores", faulty("cores", "exit 0"))
    assert done.returncode == 1
    assert "## Found" in done.stderr
    assert "which fails a host" in done.stderr.partition("## Found")[2]
    collected = firsttouch(
        "campaign", "collect", "c", FIRSTTOUCH_OUT=str(tmp_path / "out"), FIRSTTOUCH_SYSTEMS=str(tmp_path)
    )
    assert collected.returncode == 1
