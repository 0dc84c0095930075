# SPDX-License-Identifier: Apache-2.0
"""Runs that share a host: each has separate PUs while there are free ones, and no claim outlives its run."""

import contextlib
import os
import pwd
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from factories.users import OTHER, root_only, shared_folder
from firsttouch import AlignRequest
from firsttouch.cli import run_command
from firsttouch.errors import BadInput
from firsttouch.execution import host_lock, pu_claims
from firsttouch.host import topology
from firsttouch.paths import ROOT
from firsttouch.scenarios.memory_fit import Need
from firsttouch.scenarios.placement import plan

OPTERON = topology.load(xml=ROOT / "docs/examples/opteron.xml")
#: A run that claims its PUs, prints them, and waits for its end.
RUN = """if True:
    import sys
    from test_pu_claims import claim
    with claim("2x8-bound") as (scenario, warning):
        print(*sorted(scenario.pus), flush=True)
        sys.stdin.read()
    """


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The folder of the claims."""
    monkeypatch.setenv("FIRSTTOUCH_LOCK", str(tmp_path))
    return tmp_path


def scenario_of(name, host=OPTERON):
    return plan(host, threads=16).scenario(name)


def claim(name, messages=None):
    say = [].append if messages is None else messages.append
    return pu_claims.claim_pus(scenario_of(name), OPTERON, lambda host: scenario_of(name, host), say)


def claims(folder):
    return [file for file in folder.iterdir() if not file.name.endswith("lock")]


def test_runs_take_free_pus_and_say_when_they_share(folder):
    messages = []
    with contextlib.ExitStack() as runs:
        four = [runs.enter_context(claim("2x8-bound", messages)) for _ in range(4)]
        assert sorted(pu for scenario, _ in four for pu in scenario.pus) == list(range(64))
        assert [warning for _, warning in four] == [""] * 4
        assert len(messages) == 3
        scenario, warning = runs.enter_context(claim("2x8-bound"))
        assert scenario == scenario_of("2x8-bound")
        assert f"process {os.getpid()} of" in warning
    assert claims(folder) == []


def test_a_run_alone_has_the_plan_of_a_host_without_claims(folder):
    for name, count in (("2x8-bound", 1), ("4x4-interleave", 1), ("1x16-interleave", 0)):  # one is not bound
        with claim(name) as (scenario, warning):
            assert (scenario, warning, len(claims(folder))) == (scenario_of(name), "", count)


def test_a_killed_run_leaves_its_pus(folder):
    environment = {**os.environ, "PYTHONPATH": f"{Path(__file__).parent}:{Path(__file__).parents[1]}"}
    for _ in range(5):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen([sys.executable, "-c", RUN], env=environment, **pipes) as run:
            pus = {int(pu) for pu in run.stdout.readline().split()}
            with claim("2x8-bound") as (scenario, _):
                assert not pus & scenario.pus
            run.send_signal(signal.SIGKILL)
        assert len(claims(folder)) == 1
        with claim("2x8-bound") as (scenario, _):
            assert scenario.pus == pus
    assert claims(folder) == []


#: Invalid claims. The last list would take minutes to read.
TEXTS = {"text": "all of them", "number": "0-99999999999999", "long": ",".join(["0-999999"] * 6000)}


@pytest.mark.parametrize("what", ["1-x", "lock"])
@pytest.mark.parametrize("kind", [*TEXTS, "fifo", "link", "folder"])
def test_what_is_no_claim_disturbs_nothing(folder, kind, what):
    name = folder / f"firsttouch-{os.uname().nodename}-claim-{what}"
    held = None
    if kind in TEXTS:
        name.write_text(TEXTS[kind])
        held = os.open(name, os.O_RDONLY)
        assert host_lock.try_lock(held, shared=what == "lock")
    elif kind == "fifo":
        os.mkfifo(name)
    elif kind == "link":
        name.symlink_to("/etc/passwd")
    else:
        name.mkdir()
    with claim("2x8-bound") as (scenario, warning):
        assert (scenario, warning) == (scenario_of("2x8-bound"), "")
    if held is not None:
        os.close(held)


@root_only
def test_a_claim_of_another_user_counts_and_names_its_owner():
    with shared_folder(0o1777) as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRSTTOUCH_LOCK", str(folder))
        name = folder / f"firsttouch-{os.uname().nodename}-claim-1-x"
        argv = ["sh", "-c", 'echo 0-31 > "$0"; exec flock "$0" sh -c "echo; read _"', name]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(argv, user=OTHER, group=OTHER, extra_groups=(), **pipes) as other:
            other.stdout.readline()
            with claim("2x8-bound") as (scenario, warning):
                assert (warning, scenario.pus & {*range(32)}) == ("", set())
                with claim("2x8-bound"), claim("2x8-bound") as (_, shared):
                    assert f"process 1 of {pwd.getpwuid(OTHER).pw_name}" in shared


def test_a_run_that_cannot_claim_its_pus_says_so(monkeypatch):
    monkeypatch.setattr(os, "write", lambda *_: os.close(-1))
    messages = []
    with claim("2x8-bound", messages) as (scenario, warning):
        assert (scenario, warning, len(messages)) == (scenario_of("2x8-bound"), "", 1)


def test_a_folder_without_write_access_is_named(monkeypatch, folder):
    monkeypatch.setenv("FIRSTTOUCH_LOCK", str(folder / "a file" / "below"))
    (folder / "a file").touch()
    with pytest.raises(BadInput, match="FIRSTTOUCH_LOCK"), claim("2x8-bound"):
        pass


@pytest.mark.parametrize(
    ("name", "fed", "left"),
    [
        ("8x8-bound", 8, "8x8-bound"),
        ("8x8-bound", 7, "4x16-bound"),
        ("16x4-local+thp", 3, "2x32-local+thp"),
        ("8x4-interleave", 1, "1x32-interleave"),
    ],
)
def test_a_small_input_gives_up_instances_but_no_threads(monkeypatch, name, fed, left):
    monkeypatch.setattr(run_command, "_fed_instances", lambda *_: fed)
    aligner = SimpleNamespace(version=lambda: "", need=lambda _: Need(), index_use="own")
    command = SimpleNamespace(aligner=aligner, index=None, threads=64, whole="")
    scenario = plan(OPTERON).scenario(name)
    assert run_command._fed_scenario(AlignRequest(scenario=name), command, scenario, OPTERON).name == left
