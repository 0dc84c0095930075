# SPDX-License-Identifier: Apache-2.0
"""``firsttouch check``: it ends in time with what it knows, and only a fail is a proof against the host."""

import contextlib
import errno
import json
import os
import select
import shutil
import subprocess
import sys

import pytest
import yaml
from msgspec.structs import asdict

from factories import systems
from factories.processes import captured, write_program
from firsttouch import cli, paths
from firsttouch.campaign import host_check, timekeeper
from firsttouch.clock import Clock
from firsttouch.host import topology
from firsttouch.records import schema
from firsttouch.systems import definition

PROBE = topology.probe_program()
#: Measures in small: what the check states itself, --sanity would leave as it is.
SMALL = f"""case "$1" in
correctness) set -- "$@" --seconds=0.001 --array-bytes=1MiB ;;
latency) set -- "$@" --sizes=1MiB ;;
esac
exec {PROBE} "$@" --sanity"""


CHECK = ("check", "--share-host", "--seconds")


def system_file(folder, **changed):
    """Write the file of a system like this host, with *changed* facts; return its path."""
    host = topology.load()
    nodes = len(host.numa_nodes)
    facts = {**systems.FACTS, "numa_nodes": nodes, "cores_per_numa_node": len(host.pus) // nodes}
    facts["memory_per_numa_node"] = f"{host.numa_nodes[0].memory_bytes} B"
    return systems.system_file(folder, "checked", facts={**facts, **changed})


@pytest.fixture
def probe(tmp_path):
    """Return a function that writes a probe which does as asked for the aspects of memory."""

    def write(commands):
        file = tmp_path / "probe"
        measuring = f'case "$1" in bandwidth|latency|correctness|cores) {commands} ;; esac'
        write_program(file, f'{measuring}\nexec {PROBE} "$@"')
        return {"FIRSTTOUCH_PROBE": str(file)}

    return write


def test_this_host_is_measured_and_judged_by_a_reference(firsttouch, tmp_path, probe):
    file = system_file(tmp_path)
    kept = ("--records", tmp_path / "r.jsonl")
    done = firsttouch(*CHECK, "3600", "--system", file, *kept, "--json", **probe(SMALL))
    document = json.loads(done.stdout)
    assert document["in_time"]
    assert document["not_measured"] == []
    records = schema.read(tmp_path / "r.jsonl")
    assert {"bandwidth", "latency"} <= {r.check for r in records}
    assert {r.system for r in records} == {"checked"}
    assert len(document["measured"]) >= 2 * len(topology.load().cpu_nodes)


def test_a_wrong_fact_fails_the_host(firsttouch, tmp_path, probe):
    file = system_file(tmp_path, numa_nodes=len(topology.load().numa_nodes) + 1)
    done = firsttouch("check", "--share-host", "--system", file, **probe("exit 3"))
    assert done.returncode == 1, done.stdout + done.stderr
    count = len(topology.load().numa_nodes)
    assert f"this host has {count}, checked has {count + 1}" in done.stdout.splitlines()[-1]


class UntilThere(Clock):
    """A clock whose time is over as soon as a file exists."""

    def __init__(self, file):
        self._file, self._later = file, 0.0

    def monotonic(self):
        self._later += 10.0 if self._file.exists() and self._file.stat().st_size else 0.0
        return self._later


@pytest.mark.parametrize(("options", "status"), [([], 0), (["--strict"], 4)])
def test_what_was_not_measured_in_time_is_named(monkeypatch, capsys, options, status):
    state = timekeeper.CheckState(None, 0, [], ["a", "b", "c", "d", "e"], [])
    monkeypatch.setattr(timekeeper, "follow", lambda *_: timekeeper.Checked(state, None))
    assert cli.main(["check", "--seconds", "50", *options]) == status
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.endswith("not measured in 50 s: a, b, c and 2 more")


def test_a_probe_that_fails_is_no_proof(firsttouch, tmp_path, probe):
    broken = probe("echo 'firsttouch-probe: error: no memory here' >&2; exit 3")
    done = firsttouch("check", "--share-host", "--system", system_file(tmp_path), **broken)
    assert done.returncode == 3
    assert "no memory here" in done.stdout


class Late(Clock):
    """A clock on which each look is ten seconds later than the one before."""

    def __init__(self):
        self._now = 0.0

    def monotonic(self):
        self._now += 10
        return self._now


def test_nothing_is_known_if_the_time_is_over_before_the_first_line():
    checked = timekeeper.follow(["tail", "-f", "/dev/null"], 0.0, Late())
    assert checked == timekeeper.Checked(None, None)


def test_the_last_whole_line_counts():
    states = [timekeeper.CheckState(None, 0, [], [title], []) for title in ("a", "b", "c")]
    first, second, third = (json.dumps(asdict(state)) for state in states)
    output = f"{first}\n{second}\n{third[:20]}"
    checked = timekeeper.follow(["printf", "%s", output], timekeeper.process_start() + 1e6)
    assert checked == timekeeper.Checked(states[1], 0)


def test_the_narrowest_reference_is_measured_first(tmp_path):
    node = topology.load().cpu_nodes[0]
    data = yaml.safe_load(system_file(tmp_path).read_text())
    for check, metric, unit, share in (
        ("bandwidth", "copy_bandwidth", "GB/s", "-9 %"),
        ("latency", "random_latency", "ns", "5 %"),
    ):
        side = "lower" if check == "bandwidth" else "upper"
        where = {"pu_nodes": [node], "bank": 0}
        reference = {"check": check, "metric": metric, "parameters": where, "value": f"10 {unit}"}
        data["references"].append({**reference, "tolerance": {side: share}, "source": "order"})
    (tmp_path / "checked.yaml").write_text(json.dumps(data))
    ordered = host_check.steps(topology.load(), definition.load(tmp_path / "checked.yaml"))
    assert [step.aspect for step in ordered[:4]] == ["correctness", "cores", "latency", "bandwidth"]


@pytest.mark.parametrize(
    ("status", "line", "healthy"),
    [
        *((status, "verdict n1 fail: it is slow", status != 1) for status in range(4)),
        (1, "", True),
        (1, "verdict n1 suspect: to fail: is human", True),
        (1, "Traceback: verdict n1 fail: not so", True),
    ],
)
def test_the_prolog_drains_a_host_that_fails_only(tmp_path, status, line, healthy):
    for name, text in (
        ("firsttouch", f"echo measured; echo '{line}'; exit {status}"),
        ("scontrol", f'printf "%s\\n" "$@" > {tmp_path}/scontrol.txt'),
    ):
        write_program(tmp_path / name, f"{text}")
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURMD_NODENAME": "n1"}
    done = captured([paths.ROOT / "slurm" / "prolog.sh"], env=env)
    assert done.returncode == (0 if healthy else 1)
    assert (tmp_path / "scontrol.txt").exists() != healthy
    if not healthy:
        words = (tmp_path / "scontrol.txt").read_text().splitlines()
        assert words == ["update", "NodeName=n1", "State=DRAIN", "Reason=firsttouch: verdict n1 fail: it is slow"]


def test_the_prolog_takes_its_settings_from_a_file(tmp_path):
    program = tmp_path / "its own"
    write_program(program, f'printf "%s\\n" "$@" > {tmp_path}/words')
    (tmp_path / "prolog.env").write_text(f"seconds=25\nsystem=rome\nFIRSTTOUCH='{program}'\n")
    env = {"PATH": os.environ["PATH"], "FIRSTTOUCH_SITE": str(tmp_path)}
    subprocess.run([paths.ROOT / "slurm" / "prolog.sh"], env=env, check=True)
    assert (tmp_path / "words").read_text().splitlines() == ["check", "--seconds", "25", "--system", "rome"]


# ----------------------------------------------------------------------
# Its own trouble proves nothing, and a wrong answer counts whatever happens afterwards


@pytest.fixture
def answers(tmp_path):
    """Return a file with what the probe prints about a PU with wrong answers, without its last line."""
    pu = min(topology.load().allowed_pus)
    argv = [PROBE, "correctness", "--jsonl", "--sanity", f"--inject={pu},integer,3,1"]
    printed = captured(argv).stdout
    lines = [json.loads(line) for line in printed.splitlines()][:-1]
    file = tmp_path / "answers.jsonl"
    valid = {"status": "valid", "reason": ""}
    file.write_text("".join(json.dumps({**line, **valid}) + "\n" for line in lines))
    return file


def checked_until(tmp_path, monkeypatch, environment, *options):
    """Return how far a check gets until a file is there."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    argv = [sys.executable, "-m", "firsttouch", "check", "--measuring", "--share-host", *options]
    over = UntilThere(tmp_path / "over")
    return timekeeper.follow([*argv, "--system", str(system_file(tmp_path))], 5.0, over)


def test_wrong_answers_count_although_the_probe_never_ends(tmp_path, probe, monkeypatch, answers):
    # When the record is in the file, the state has been printed.
    records, over = tmp_path / "r.jsonl", tmp_path / "over"
    wait = f"until grep -q wrong_answers {records}; do sleep 0.05; done 2>/dev/null; echo x > {over}"
    hangs = probe(f"cat {answers}; echo progress >&2; {wait}; exec tail -f /dev/null")
    checked = checked_until(tmp_path, monkeypatch, hangs, "--records", str(records))
    assert (checked.status, checked.state.verdict["verdict"], checked.state.status) == (None, "fail", 1)


def test_wrong_answers_count_although_the_probe_crashes(firsttouch, tmp_path, probe, answers):
    crashes = probe(f"cat {answers}; kill -SEGV $$")
    records = tmp_path / "r.jsonl"
    done = firsttouch(*CHECK, "3600", "--system", system_file(tmp_path), "--records", records, **crashes)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].startswith(f"verdict {schema.read(records)[0].host} fail: ")
    assert any(r.metric == "wrong_answers" and r.value for r in schema.read(records))


def test_wrong_answers_of_an_invalid_record_are_named(firsttouch, tmp_path, probe, answers):
    invalid = tmp_path / "invalid.jsonl"
    text = answers.read_text().replace('"status": "valid", "reason": ""', '"status": "invalid", "reason": "x"')
    invalid.write_text(text)
    prints = probe(f"cat {invalid}; exit 1")
    done = firsttouch(*CHECK, "3600", "--system", system_file(tmp_path), **prints)
    assert done.returncode == 4
    assert "in a record that is invalid: x" in done.stdout


@pytest.mark.parametrize("program", ["true", "false", "no-such-program"])
def test_a_probe_that_tells_nothing_of_the_host_is_no_proof(firsttouch, tmp_path, program):
    broken = {"FIRSTTOUCH_PROBE": shutil.which(program) or program}
    done = firsttouch("check", "--share-host", "--system", system_file(tmp_path), **broken)
    assert done.returncode == 3
    assert "undecided" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("limit", ["-n 8", "-v 200000"])
def test_limits_of_the_caller_are_no_proof(tmp_path, limit):
    argv = [sys.executable, "-m", "firsttouch", "check", "--system", str(system_file(tmp_path))]
    done = captured(["bash", "-c", f'ulimit {limit}; exec "$@"', "bash", *argv])
    assert done.returncode in {2, 3}
    assert "Traceback" not in done.stderr


def test_records_that_cannot_be_written_are_refused_before_anything_is_measured(firsttouch, tmp_path):
    done = firsttouch("check", "--records", tmp_path, **{"FIRSTTOUCH_PROBE": "/bin/false"})
    assert (done.returncode, done.stdout) == (2, "")
    assert str(tmp_path) in done.stderr


@pytest.mark.parametrize("unreadable", [b"{broken\n", b"\0\xff\n"])
def test_a_past_that_cannot_be_read_is_named_before_anything_is_measured(firsttouch, tmp_path, unreadable):
    past = tmp_path / "past.jsonl"
    system = ("--system", "amd-opteron")
    schema.append(past, [schema.Record("latency", "random_latency", "ns", "lower", (1.0,), system=system[1])])
    past.write_bytes(past.read_bytes() + unreadable)
    done = firsttouch("check", *system, "--against", past, **{"FIRSTTOUCH_PROBE": "/bin/false"})
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{past}:2:" in done.stderr


def test_a_wrong_answer_of_the_past_fails_the_host(firsttouch, tmp_path, probe):
    past = tmp_path / "past.jsonl"
    wrong = schema.Record("correctness", "wrong_answers", "1", "lower", (2.0,), {"pu": 0}, system="checked")
    schema.append(past, [wrong])
    system = ("--system", system_file(tmp_path))
    done = firsttouch("check", "--share-host", *system, "--against", past, **probe("exit 3"))
    assert (done.returncode, f"verdict {wrong.host} fail: wrong answers" in done.stdout) == (1, True)


@pytest.mark.skipif(len(topology.load().allowed_pus) < 2, reason="there is one PU")
def test_the_mask_of_the_caller_is_not_the_hosts(tmp_path, probe):
    small = probe(SMALL)
    argv = ["taskset", "-c", str(min(topology.load().allowed_pus)), sys.executable, "-m", "firsttouch", "check"]
    argv += ["--seconds=3600", "--share-host", "--system", str(system_file(tmp_path))]
    done = captured(argv, env={**os.environ, **small})
    assert done.returncode == 3
    assert "PUs (affinity or cpuset), so their number is not judged" in done.stdout


def test_a_probe_that_hangs_is_killed_with_all_that_it_started(tmp_path, probe, monkeypatch):
    pids, over = tmp_path / "pids", tmp_path / "over"
    # setsid: the child is in no group of the check.
    starts = f"setsid tail -f /dev/null & echo $! $$ > {pids}; echo x > {over}; exec tail -f /dev/null"
    checked = checked_until(tmp_path, monkeypatch, probe(starts))
    assert checked.status is None
    assert checked.state.left[0] == "known answers of all PUs"
    for pid in map(int, pids.read_text().split()):
        with contextlib.suppress(ProcessLookupError):  # it has ended already
            handle = os.pidfd_open(pid)
            assert select.select([handle], [], [], 60.0)[0] == [handle]
            os.close(handle)


def test_a_check_goes_on_if_its_records_cannot_be_kept(monkeypatch):
    @contextlib.contextmanager
    def full(*_args, **_options):
        def keep(_records):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        yield keep

    monkeypatch.setattr(host_check, "hold_and_record", full)
    with host_check._recorded(None, troubles := [], share_host=True, say=print) as keep:
        keep([])
        keep([])
    assert len(troubles) == 1
    assert "records are not stored: " in troubles[0]


def test_a_process_that_was_killed_is_named(monkeypatch, capsys):
    state = timekeeper.CheckState(None, 0, [], ["a"], [])
    monkeypatch.setattr(timekeeper, "follow", lambda *_: timekeeper.Checked(state, -9))
    assert cli.main(["check", "--seconds", "50"]) == 3
    assert "SIGKILL" in capsys.readouterr().out


def test_a_reader_that_takes_nothing_is_not_waited_for():
    read_end, write_end = os.pipe()
    code = "from firsttouch.cli import check\nwith check._output_until(0.01, 3): print('x' * (1 << 22))"
    done = subprocess.run([sys.executable, "-c", code], stdout=write_end, check=False)
    assert done.returncode == 3
    os.close(read_end)
    os.close(write_end)
