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
import threading

import pytest
from msgspec.structs import asdict

from factories.processes import captured, write_program
from firsttouch import cli, paths
from firsttouch.benchmarks import programs
from firsttouch.campaign import host_check, timekeeper
from firsttouch.clock import SYSTEM_CLOCK, Clock
from firsttouch.fleet import verdict_log
from firsttouch.fleet.measuring import CheckJudge
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


def system_file(folder, **facts):
    """Write the file of a system like this host, with other *facts*; return its path."""
    host = topology.load()
    nodes, pus = len(host.numa_nodes), len(host.pus)
    usual = {
        "source": "order",
        "processor": "x",
        "packages": 1,
        "numa_nodes": nodes,
        "cores_per_numa_node": pus // nodes,
        "threads_per_core": 1,
        "memory_per_numa_node": f"{host.numa_nodes[0].memory_bytes} B",
    }
    data = {"name": "checked", "description": "x", "hostnames": ["x"], "facts": {**usual, **facts}}
    data |= {"partitions": [{"name": "p", "scheduler": "local"}], "references": []}
    file = folder / "checked.yaml"
    file.write_text(json.dumps(data))
    return file


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
    assert "NUMA nodes: 1" in done.stdout.replace(str(len(topology.load().numa_nodes)), "1").splitlines()[-1]


class UntilThere(Clock):
    """A clock whose time is over as soon as a file exists."""

    def __init__(self, file):
        self._file, self._later = file, 0.0

    def monotonic(self):
        self._later += 10.0 if self._file.exists() and self._file.stat().st_size else 0.0
        return self._later


@pytest.mark.parametrize(("options", "status"), [([], 0), (["--strict"], 4)])
def test_what_was_not_measured_in_time_is_named(monkeypatch, capsys, options, status):
    state = timekeeper.State(None, 0, [], ["a", "b", "c", "d", "e"], [])
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
    states = [timekeeper.State(None, 0, [], [title], []) for title in ("a", "b", "c")]
    first, second, third = (json.dumps(asdict(state)) for state in states)
    output = f"{first}\n{second}\n{third[:20]}"
    checked = timekeeper.follow(["printf", "%s", output], timekeeper.started() + 1e6)
    assert checked == timekeeper.Checked(states[1], 0)


def test_the_narrowest_reference_is_measured_first(tmp_path):
    node = topology.load().cpu_nodes[0]
    data = json.loads(system_file(tmp_path).read_text())
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

    monkeypatch.setattr(host_check, "recording", full)
    with host_check._recorded(None, troubles := [], share_host=True, say=print) as keep:
        keep([])
        keep([])
    assert len(troubles) == 1
    assert "records are not kept: " in troubles[0]


def test_a_process_that_was_killed_is_named(monkeypatch, capsys):
    state = timekeeper.State(None, 0, [], ["a"], [])
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


# ----------------------------------------------------------------------
# What was blamed before comes first


def blamed(host, reason, time, *, verdict="fail", system="amd-opteron"):
    """Return a line of the log of verdicts."""
    values = {"time": time, "host": host, "system": system, "verdict": verdict, "reason": reason, "source": "x"}
    return json.dumps(values) + "\n"


def order(monkeypatch, folder, seconds=3600.0, seed=1):
    """Return the steps of eight NUMA nodes after those of all PUs, by the log in *folder*, and lines.

    *seconds* is the time that the log may take, and *seed* draws the order.
    """
    monkeypatch.setenv("FIRSTTOUCH_VERDICTS", str(folder))
    monkeypatch.setenv("FIRSTTOUCH_SEED", str(seed))
    monkeypatch.setattr(host_check, "_LOG_SECONDS", seconds)
    lines = []
    system = definition.load("amd-opteron")
    blame = host_check.logged_blame("n1", CheckJudge(system, strict=False), lines.append)
    opteron = topology.load(xml=paths.ROOT / "docs" / "examples" / "opteron.xml")
    ordered = host_check.steps(opteron, system, blame)
    return [step.title for step in ordered[2:]], lines


def test_a_host_without_a_thread_left_is_checked_in_the_order_of_the_references(tmp_path, monkeypatch):
    def none_left(_):
        raise RuntimeError("can't start new thread")

    usual, _ = order(monkeypatch, tmp_path)
    monkeypatch.setattr(threading.Thread, "start", none_left)
    assert order(monkeypatch, tmp_path) == (
        usual,
        ["firsttouch: the log of verdicts does not set the order of the measurements: can't start new thread"],
    )


def copy(node, bank):
    """Return the reason of a verdict whose worst metric is this bandwidth."""
    return f"copy, NUMA {node} to bank {bank}: 23.3 GB/s, 24.8 % below 31 (fleet); 3 more"


def latency(node, bank):
    """Return the reason of a verdict whose worst metric is this latency."""
    return f"random latency, NUMA {node} to bank {bank}, 1 GiB, random order: 200 ns, 20 % above 150"


def test_what_verdicts_blamed_is_among_the_first_and_not_always_the_first(tmp_path, monkeypatch):
    log, now = tmp_path / "log", SYSTEM_CLOCK.time()
    usual, _ = order(monkeypatch, tmp_path)
    log.mkdir()
    far = next(title for title in usual[::-1] if title.startswith("bandwidth"))
    node, bank = far.split()[4], far.split()[-1]
    (log / "n1.jsonl").write_text(
        blamed("n1", copy(node, bank), now - 9)
        + blamed("n1", latency(2, 2), now - 8, verdict="suspect")
        + blamed("n1", "memory of bank 2: latency 20.0 % worse than its siblings, 1 session", now - 7)
        + blamed("n1", "memory of bank 3: bandwidth 9.0 % worse than its own level", now - 7)
        + blamed("n1", copy(1, 1), now - 100 * 86400)
        + blamed("n1", copy(1, 1), now - 6, verdict="undecided")
        + blamed("n1", copy(1, 1), now - 5, system="another")
    )
    (log / "n2.jsonl").write_text(blamed("n2", latency(3, 3), now - 60))
    first = {"latency of NUMA node 2 to bank 2", far, "bandwidth of NUMA node 3 to bank 3"}
    ordered, lines = order(monkeypatch, tmp_path)
    others = [title for title in usual if title not in first]
    assert set(ordered[:6]) == {*first, *others[:3]}
    assert ordered[6:] == others[3:]
    assert lines == []
    begins = {order(monkeypatch, tmp_path, seed=seed)[0][0] in first for seed in range(1, 41)}
    assert begins == {True, False}


def test_a_damaged_or_huge_log_keeps_the_order(tmp_path, monkeypatch):
    usual, lines = order(monkeypatch, tmp_path / "absent")
    assert lines == []
    log = tmp_path / "log"
    log.mkdir()
    (log / "n1.jsonl").write_bytes(b"\xff{not json\n" + blamed("n9", "copy", 1.0).encode() + b"[1]\n" * 9)
    with (log / "n2.jsonl").open("wb") as huge:
        huge.truncate(1 << 40)
    os.mkfifo(log / "n3.jsonl")
    (log / "n4.jsonl").symlink_to("/dev/zero")
    assert order(monkeypatch, tmp_path) == (usual, [])


def test_a_folder_that_cannot_be_read_is_one_line(tmp_path, monkeypatch):
    usual, _ = order(monkeypatch, tmp_path)
    (tmp_path / "log").write_text("no folder")
    ordered, (line,) = order(monkeypatch, tmp_path)
    assert ordered == usual
    assert "the log of verdicts does not set the order of the measurements: " in line


def test_a_server_that_never_answers_is_not_waited_for(tmp_path, monkeypatch):
    usual, _ = order(monkeypatch, tmp_path)
    answer = threading.Event()
    monkeypatch.setattr(verdict_log, "read", lambda **_: answer.wait() and {})
    ordered, (line,) = order(monkeypatch, tmp_path, 0.0)
    answer.set()
    assert ordered == usual
    assert "it took longer than 0 s" in line


#: Runs the process of a check that measures, which waits longer for the log than a busy host needs to read it.
PATIENT = """if True:
    import sys
    from firsttouch import cli
    from firsttouch.campaign import host_check
    host_check._LOG_SECONDS = 3600.0
    sys.exit(cli.main())
"""


def test_a_check_measures_what_the_log_blames_and_the_rest(tmp_path, probe, monkeypatch):
    """The log never decides; the tests of steps above have its order."""
    host = topology.load()
    node = host.cpu_nodes[-1]
    bank = programs.nearest(host, (node,))
    (tmp_path / "log").mkdir()
    name = os.uname().nodename
    text = blamed(name, latency(node, bank), SYSTEM_CLOCK.time() - 60, system="checked")
    (tmp_path / "log" / f"{name}.jsonl").write_text(text)
    monkeypatch.setenv("FIRSTTOUCH_SEED", "1")
    system = system_file(tmp_path)
    steps = host_check.steps(
        host, definition.load(str(system)), lambda case: int(latency(node, bank).startswith(case.title))
    )
    done = captured(
        [sys.executable, "-c", PATIENT, "check", "--measuring", "--share-host", "--system", system],
        env={**os.environ, **probe(SMALL), "FIRSTTOUCH_VERDICTS": str(tmp_path)},
        check=True,
    )
    state = json.loads(done.stdout.splitlines()[-1])
    metrics = dict.fromkeys(measured["metric"].split(",")[0] for measured in state["measured"])
    aspects = [step.aspect for step in steps if step.node == node and step.bank == bank]
    assert sorted("latency" if "latency" in metric else "bandwidth" for metric in metrics) == sorted(aspects)
    assert state["verdict"]["verdict"] != "fail"
    assert state["left"] == []
