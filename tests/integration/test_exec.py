# SPDX-License-Identifier: Apache-2.0
"""``firsttouch run``: any program in the foreground, with all that the command inherited, verified."""

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from factories import huge_pages
from factories.held_programs import command, python_wait, shell_wait
from factories.processes import captured, wait_until
from firsttouch import paths
from firsttouch.advice import saved
from firsttouch.host.cpusets import format_list, parse_list
from firsttouch.host.emulation import host_name
from firsttouch.host.topology import load, parse_xml
from firsttouch.records import schema
from firsttouch.scenarios import memory_options

#: Tells its process and its signals; when the file "end" exists, it waits until it has been sampled, and ends.
PUS = len(os.sched_getaffinity(0))
PROGRAM = f"""\
import os, signal, time
held = bytes([1]) * (8 << 20)
for number in sorted(signal.valid_signals() - {{signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGQUIT}}):
    signal.signal(number, lambda number, _: print("got", signal.Signals(number).name, flush=True))
print("ready", os.getpid(), flush=True)
while not os.path.exists("end"):
    time.sleep(0.02)
{python_wait(Path())}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


def shell(script, **env):
    """Run a line of bash, in which $ft is the command."""
    return captured(
        ["bash", "-c", script],
        env={**os.environ, "ft": shlex.join(command(Path.cwd(), "run", "--share-host")), **env},
        timeout=120,
    )


def wait_for_end(pid):
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), f"the end of process {pid}")


def test_the_program_gets_all_that_the_command_inherited(folder):
    inner = 'f; pwd; cat - "$0" "$1"; echo text >&4; echo $OMP_NUM_THREADS.; ' + shell_wait(folder) + "; exit 7"
    script = f"""
        f() {{ echo "function of the shell"; }}; export -f f; cd /
        exec 4> {folder}/four 9< <(echo nine)
        echo input | $ft 1x-interleave -- bash -c '{inner}' <(echo substituted) /dev/fd/9
        echo status $?"""
    done = shell(script, OMP_NUM_THREADS="1")
    lines = ["function of the shell", "/", "input", "substituted", "nine", "1.", "status 7"]
    assert done.stdout.splitlines() == lines, done
    assert (folder / "four").read_text() == "text\n"
    assert done.stderr.startswith(f"firsttouch: 1x{PUS}-interleave: ")
    assert done.stderr.endswith(" s, ended with status 7, placement verified\n")


def test_a_reader_that_ends_early_ends_the_program():
    done = shell('yes | $ft 1x-interleave -- cat | head -n 1; echo "${PIPESTATUS[@]}"')
    assert (done.stdout, "ended by SIGPIPE" in done.stderr) == ("y\n141 141 0\n", True), done


@pytest.mark.parametrize(
    ("options", "words", "printed"),
    [
        ("1x1-interleave", "sh -c 'echo {threads} $OMP_NUM_THREADS.'", "1 1."),
        ("", "env X={threads} sh -c 'echo $X $OMP_NUM_THREADS.'", "{0} ."),
        ("1x-local", "sh -c 'echo {threads} $OMP_NUM_THREADS.'", "{0} ."),
        ("", "echo --help -- --json", "--help -- --json"),
    ],
)
def test_threads_and_words_behind_the_dashes(monkeypatch, options, words, printed):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    done = shell(f"$ft {options} -- {words}")
    assert done.stdout == printed.format(len(os.sched_getaffinity(0))) + "\n", done


def test_the_result_as_json_and_as_a_record(folder):
    done = shell(f"$ft 1x-local --json --verify --records r.jsonl -- sh -c '{shell_wait(folder)}'")
    assert (done.returncode, done.stdout) == (0, ""), done
    result = json.loads(done.stderr)
    assert (result["exit_status"], result["placement"], result["reason"]) == (0, "verified", "")
    assert result["placement_found"][0]["policy"] == "local"
    (record,) = schema.read(folder / "r.jsonl")
    assert (record.check, record.metric, record.value, record.status) == (
        "run",
        "time",
        result["seconds"],
        "valid",
    )
    assert record.parameters["program"] == "sh"


def test_the_json_document_is_the_last_line_beside_what_the_program_prints(folder):
    program = "sh -c 'echo result; echo message >&2'"
    done = shell(f"$ft 1x-local --json -- {program} 2>&1 >out | tail -n 1")
    assert ((folder / "out").read_text(), done.stderr) == ("result\n", "")
    assert json.loads(done.stdout)["program"][0] == "sh"
    # A measurement prints its result on standard output.
    (folder / "x.yaml").write_text("program: [sh, -c, 'echo result; echo message >&2']\n")
    done = shell("$ft --check x.yaml --json --repetitions 1 2>err")
    assert json.loads(done.stdout)["check"] == "x"


def test_processes_that_outlive_the_program_are_named(folder):
    os.mkfifo(folder / "end")
    # The second one ends before the program does.
    program = f"sh -c 'setsid cat end & (true &); {shell_wait(folder)}'"
    done = shell(f"$ft 1x-default --json -- {program}; echo >end")
    (left,) = json.loads(done.stderr.splitlines()[-1])["detached"]
    assert left["name"] == "cat"
    warning = f"firsttouch: warning: the program left processes (cat ({left['pid']})): they go on, "
    assert done.stderr.startswith(warning), done
    wait_for_end(left["pid"])
    done = shell(f"$ft 1x-default --timeout 50 -- {program}")
    assert re.search(r"\(cat \(\d+\)\): --timeout has stopped them, and the result is without them\n", done.stderr)


def test_orphans_that_end_leave_no_zombie(folder):
    script = f"for i in 1 2 3; do (true &); done; {shell_wait(folder)}; ps -o comm= --ppid $PPID"
    done = shell(f"$ft 1x-default -- sh -c '{script}'")
    assert done.stdout.split() == ["sh"], done


def test_on_one_numa_node_pages_must_lie_there(folder):
    node = load().cpu_nodes[0]
    done = shell(f"$ft --on {node} --verify --json -- sh -c '{shell_wait(folder)}'")
    assert done.returncode == 0, done
    (asked,) = json.loads(done.stderr.splitlines()[-1])["placement_asked"]
    assert (asked["numa_nodes"], asked["numactl"][-1]) == ([node], f"--membind={node}")
    done = shell(f"$ft --on all --json -- sh -c '{shell_wait(folder)}'")
    (asked,) = json.loads(done.stderr.splitlines()[-1])["placement_asked"]
    assert asked["numa_nodes"] == [*load().data_nodes], done


def test_a_program_that_takes_another_placement_is_invalid(folder):
    program = f"numactl --localalloc sh -c '{shell_wait(folder)}'; echo $?"
    done = shell(f"$ft 1x-interleave -- {program}; $ft 1x-interleave --verify -- {program}")
    assert (done.stdout, done.stderr.count("INVALID: memory policy is local")) == ("0\n1\n", 2), done


def test_a_placement_that_nobody_could_observe_is_no_wrong_one(folder):
    # On a busy host, even a program that does nothing may be seen now and then.
    for _ in range(20):
        done = shell("$ft 1x-local --verify -- true; echo $?")
        is_unseen = "the placement cannot be verified" in done.stderr
        assert done.stdout == ("4\n" if is_unseen else "0\n"), done
        if is_unseen:
            break
    assert is_unseen
    assert shell("$ft 1x-local --verify -- false; echo $?").stdout == "1\n"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two PUs")
def test_pus_that_were_not_granted_are_named(folder):
    pus = len(os.sched_getaffinity(0))
    limited = f"taskset -c {min(os.sched_getaffinity(0))} $ft --records r.jsonl --json"
    program = f"sh -c '{shell_wait(folder)}'"
    lacking = f"{pus} threads are asked for, and this process may use 1 of the host's "
    done = shell(f"{limited} -- {program}", OMP_NUM_THREADS=str(pus), SLURM_JOB_ID="7")
    assert done.returncode == 0, done
    assert f"firsttouch: warning: {lacking}" in done.stderr
    (text,) = json.loads(done.stderr.splitlines()[-1])["lacking"]
    (record,) = schema.read(folder / "r.jsonl")
    assert record.placement_asked[0]["lacking"] == [text]
    assert text.endswith(f"PUs: sbatch --cpus-per-task={pus} grants them")
    done = shell(f"{limited} -- {program}", OMP_NUM_THREADS="1")
    assert (done.returncode, "warning" in done.stderr) == (0, False), done
    assert "lacking" not in schema.read(folder / "r.jsonl")[-1].placement_asked[0]


#: Starts two tasks as srun does, their output in files.
TASKS = """\
mkdir -p tmp; export TMPDIR=$PWD/tmp SLURM_NODEID=0 SLURM_STEP_TASKS_PER_NODE=2
for n in 0 1; do SLURM_LOCALID=$n SLURM_PROCID=$n $ft {options} -- sh -c {program} >out.$n 2>err.$n & done
"""


def tasks(folder, options, program, then="wait"):
    """Run two tasks of a step, and return what each wrote on standard error."""
    done = shell(TASKS.format(options=options, program=shlex.quote(program)) + then)
    assert done.returncode == 0, done
    # They share no folder, whose names others could foresee.
    assert not [*(folder / "tmp").iterdir()]
    return [(folder / f"err.{number}").read_text() for number in range(2)]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two PUs")
def test_the_tasks_of_a_step_divide_what_they_were_granted_and_each_records_its_own_placement(folder):
    options = "--verify --records r.jsonl"
    errors = tasks(folder, options, f"taskset -cp $$ | sed s/.*:.//; {shell_wait(folder)}")
    divided = [parse_list((folder / f"out.{number}").read_text().strip()) for number in range(2)]
    assert divided[0].isdisjoint(divided[1])
    assert len(divided[0]) == len(divided[1]) == len(os.sched_getaffinity(0)) // 2
    for number, text in enumerate(errors):
        pus = re.escape(format_list(divided[number]))
        ending = rf"2x{len(divided[0])}-bound: \d+\.\d+ s, placement verified"
        assert re.fullmatch(rf"firsttouch: task {number} on \S+, PUs? {pus}: {ending}\n", text), text
    records = schema.read(folder / "r.jsonl")
    for record in records:
        assert (record.status, record.parameters["scenario"]) == ("valid", f"2x{len(divided[0])}-bound")
        assert [set(placement["pus"]) for placement in record.placement_found] == [
            set(placement["pus"]) for placement in record.placement_asked
        ]
    assert sorted(record.placement_found[0]["pus"] for record in records) == sorted(map(sorted, divided))


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two PUs")
def test_each_task_has_its_own_result_whatever_becomes_of_the_others(folder):
    for number in range(2):
        os.mkfifo(folder / f"pid.{number}")
        os.mkfifo(folder / f"go.{number}")
    program = f"echo $PPID >pid.$SLURM_LOCALID; read x <go.$SLURM_LOCALID; {shell_wait(folder)}; exit 7"
    # Nobody writes for the task that is killed.
    kill = "read first <pid.0; read second <pid.1; kill -KILL $second; wait %2; echo >go.0; wait"
    first, second = tasks(folder, "--json --records r.%t.jsonl", program, kill)
    document = json.loads(first)
    assert (document["host"], document["task"], document["exit_status"]) == (host_name(), 0, 7)
    assert document["placement"] == "verified"
    assert second == ""
    assert not list(folder.glob("*.jsonl"))


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two PUs")
def test_a_task_whose_placement_did_not_hold_says_so_itself(folder):
    elsewhere = f"test $SLURM_LOCALID = 0 || exec numactl --membind=0 sh -c '{shell_wait(folder)}'"
    program = f"{elsewhere}; {shell_wait(folder)}"
    first, second = tasks(folder, "--verify --records r.%t.jsonl 1x-local", program)
    assert first.endswith(", placement verified\n")
    assert "INVALID: memory policy is bind:0" in second
    (record,) = schema.read(folder / "r.1.jsonl")
    assert (record.status, record.reason.partition("memory")[0]) == ("invalid", "task 1: ")
    (record,) = schema.read(folder / "r.0.jsonl")
    assert (record.status, record.reason) == ("valid", "")


def test_a_result_is_told_also_if_its_record_cannot_be_written(folder):
    (folder / "kept").mkdir()
    done = shell("$ft --records kept/r.jsonl 1x-default -- sh -c 'rmdir kept; touch kept'")
    assert re.match(r"firsttouch: 1x\d+-default: .* s, .*\nfirsttouch: error: .*kept", done.stderr), done
    assert done.returncode != 0


def test_a_file_that_cannot_be_written_is_named_before_the_program_starts(folder, run_here):
    (folder / "file").touch()
    (folder / "link").symlink_to("new/x")
    for place, why in (
        (".", "can only be appended to a file"),
        ("file/x", "file is not a writable folder"),
        ("link", "new is not a writable folder (it does not exist)"),
        ("/proc/x", "/proc is not a writable folder"),
    ):
        done = run_here("run", "--records", place, "--", "touch", "started")
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert why in done.stderr
    assert not (folder / "started").exists()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two PUs")
def test_one_task_says_that_their_shares_are_too_small(folder, monkeypatch):
    pus = len(os.sched_getaffinity(0))
    monkeypatch.setenv("OMP_NUM_THREADS", str(pus))
    first, second = tasks(folder, "--json", shell_wait(folder))
    warning = f"firsttouch: warning: {pus} threads are asked for, and this process may use {pus // 2} "
    assert first.startswith(warning)
    documents = [json.loads(text.splitlines()[-1]) for text in (first, second)]
    assert [len(second.splitlines()), *(document["placement"] for document in documents)] == [1, *["verified"] * 2]
    assert all(document["lacking"][0] in first for document in documents)


def test_a_scenario_that_leaves_pus_to_the_kernel_is_not_for_tasks(folder):
    done = shell("$ft --on 0 1x1-unbound -- true")
    assert done.returncode == 2
    assert "1x1-unbound leaves the PUs to the kernel: --on and the tasks of srun state them" in done.stderr


def test_a_program_runs_on_the_last_level_cache_that_it_is_given(folder):
    """hwloc reports a cache for each of this host's cores, which the kernel may share out otherwise."""
    argv = ["lstopo-no-graphics", "--of", "xml", "--disallowed", "-"]
    root = ET.fromstring(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)  # noqa: S314
    for package in [*root.iter("object")]:
        for last in package.findall("object[@type='L3Cache']") if package.get("type") != "L3Cache" else ():
            package.remove(last)
            for cache in last.findall("object"):
                cache.attrib |= {"type": "L3Cache", "depth": "3"}
                package.append(cache)
    xml = folder / "caches.xml"
    xml.write_bytes(ET.tostring(root))
    domains = parse_xml(xml.read_text()).domains
    if not domains:
        pytest.skip("NOT TESTED: this host has no two cores in a NUMA node")
    env = {"HWLOC_XMLFILE": str(xml), "HWLOC_THISSYSTEM": "1"}
    done = shell(f"$ft --on cache:{len(domains) - 1} --verify --json -- sleep 1", **env)
    assert done.returncode == 0, done
    result = json.loads(done.stderr.splitlines()[-1])
    assert result["placement_asked"][0]["pus"] == sorted(domains[-1])
    assert result["placement_found"][0]["pus"] == sorted(domains[-1])


def test_auto_follows_the_saved_advice_if_it_can(folder, monkeypatch):
    monkeypatch.setenv("FIRSTTOUCH_ADVICE", str(folder / "advice"))
    done = shell("$ft -- sleep 0.3")
    assert "sleep runs as it is: there is no advice for it on this host" in done.stderr
    assert f"to get one: firsttouch advise -- sleep 0.3\nfirsttouch: 1x{PUS}-default: " in done.stderr
    key = saved.program_key(load(), ["sleep", "0.3"], len(os.sched_getaffinity(0)))
    saved.save(key, "1x-interleave", None, {}, str)
    done = shell("$ft -- sleep 0.3")
    assert f" under 1x{PUS}-interleave, as advised on 20" in done.stderr
    assert f"\nfirsttouch: 1x{PUS}-interleave: " in done.stderr
    saved.save(key, "1x9999-interleave", None, {}, str)
    done = shell("$ft -- sleep 0.3")
    assert (done.returncode, "does not fit this host now: " in done.stderr) == (0, True)
    assert f"\nfirsttouch: 1x{PUS}-default: " in done.stderr


@pytest.mark.parametrize(
    ("argv", "status", "message"),
    [
        ("2x-bound -- true", 2, " has 2 instances"),
        ("1x-default", 2, "no program: give it after --"),
        ("1x-default -- ./program.py", 3, "./program.py is not executable"),
        ("1x1-default --threads 2 -- true", 2, "1x1-default has 1 threads, --threads asks for 2"),
        ("--on 4096 -- true", 2, "there is no NUMA node 4096"),
        ("--on x -- true", 2, "'x' is not a list of numbers such as 0-3,8"),
        ("--on cache:99 -- true", 2, "cache"),
        ("1x-default -- not-there", 3, "'not-there' is not on PATH"),
    ],
)
def test_what_cannot_be_run_is_one_line(run_here, argv, status, message):
    done = run_here("run", "--share-host", *shlex.split(argv))
    assert (done.returncode, message in done.stderr, done.stderr.count("\n")) == (status, True, 1), done


def test_a_program_that_exceeds_its_time_is_stopped_with_what_it_started():
    for seconds in ("0.3", "3", "30"):
        done = shell(f"$ft --timeout {seconds} 1x-default -- sh -c 'sleep 1000 & echo $!; wait'")
        assert (done.returncode, done.stderr.count("\n")) == (1, 1), done
        assert f"sh did not end within {seconds} s and was" in done.stderr
        if done.stdout:  # a program that is stopped before it begins shows nothing
            break
    (pid,) = done.stdout.split()
    wait_for_end(pid)


@pytest.fixture
def started(folder):
    """Start PROGRAM by the command; returns the command's process and the program's process number."""
    argv = command(folder, "run", "--share-host", "1x-interleave", "--", sys.executable, "program.py")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        word, pid = process.stdout.readline().split()
        assert word == "ready"
        yield process, int(pid)


def test_signals_reach_the_program(started, folder):
    process, pid = started
    sent = [*(signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP, signal.SIGWINCH, signal.SIGPWR)]
    sent += [*(signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGIO, signal.SIGRTMIN, signal.SIGRTMAX)]
    for number in sent:
        process.send_signal(number)
        assert process.stdout.readline() == f"got {number.name}\n"
    (folder / "end").touch()
    _, err = process.communicate(timeout=120)
    assert (process.returncode, "placement verified" in err) == (0, True), err
    wait_for_end(pid)


def test_the_program_ends_with_a_command_that_is_killed(started):
    process, pid = started
    process.kill()
    wait_for_end(pid)


def test_the_signal_that_ends_the_program_is_in_the_exit_status(started):
    process, pid = started
    os.kill(pid, signal.SIGQUIT)
    _, err = process.communicate(timeout=120)
    assert (process.returncode, "ended by SIGQUIT" in err) == (128 + signal.SIGQUIT, True)


def test_a_terminals_interrupt_reaches_the_program_once(folder):
    pid, terminal = pty.fork()
    if pid == 0:
        argv = command(folder, "run", "--share-host", "--", sys.executable, "program.py")
        os.execv(argv[0], argv)  # noqa: S606 - the child of a fork
    shown = b""
    while b"ready" not in shown:
        shown += os.read(terminal, 1024)
    os.write(terminal, b"\x03")
    while b"got SIGINT" not in shown:
        shown += os.read(terminal, 1024)
    # Nothing tells that a second signal will not arrive, so it is given some time.
    time.sleep(0.3)
    (folder / "end").touch()
    while b"verified" not in shown:
        shown += os.read(terminal, 1024)
    assert shown.count(b"got SIGINT") == 1, shown
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(terminal)


HOLDING = f"block = bytes([1]) * (64 << 20)\n{python_wait(Path())}"
#: Asks for huge pages itself.
ADVISING = f"""\
import mmap
block = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
block.madvise(mmap.MADV_HUGEPAGE)
block.write(bytes(64 << 20))
{python_wait(Path())}
"""


def held(tmp_path, option, program=HOLDING):
    result = shell(f'$ft 1x-default+{option} --verify --json -- {sys.executable} -c "$P"', P=program)
    document = json.loads(result.stderr.splitlines()[-1]) if "{" in result.stderr else {}
    return result, document


@pytest.mark.parametrize(
    "option", ["thp", "no-thp", "mimalloc", "jemalloc", "tcmalloc", "thp+mimalloc", "thp+jemalloc"]
)
@huge_pages.needed()
def test_memory_options_are_verified(folder, option):
    if reason := memory_options.refusal(memory_options.parse_suffix(option)):
        assert "cannot be loaded" not in reason  # `make setup` installs the allocators
        pytest.skip(reason)
    result, document = held(folder, option, ADVISING if option == "no-thp" else HOLDING)
    assert (result.returncode, document["placement"]) == (0, "verified"), result.stderr
    assert document["placement_asked"][0]["memory_options"] == option.split("+")
    memory = document["placement_found"][0]["memory"]
    assert memory["anonymous_bytes"] > 4 << 20
    assert (2 * memory["huge_bytes"] > memory["anonymous_bytes"]) == option.startswith("thp")
    allocator = memory_options.option_of_kind(option.split("+"), "allocator")
    assert memory["allocators"] == ([allocator.library] if allocator else [])


#: Holds nothing until it has been sampled, then N MiB for as long as the kernel needs to fill them.
GROWING = f"""\
import mmap
{python_wait(Path())}
flags = mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE | getattr(mmap, os.environ["SHARING"])
mmap.mmap(-1, int(os.environ["MIB"]) << 20, flags=flags)
"""


@pytest.mark.parametrize(
    ("option", "mebibytes", "sharing"),
    [("", 300, "MAP_PRIVATE"), ("", 300, "MAP_SHARED"), ("+jemalloc", 300, "MAP_PRIVATE")],
)
def test_a_program_is_verified_only_if_most_of_its_memory_was_sampled(option, mebibytes, sharing):
    if option and (reason := memory_options.refusal(memory_options.parse_suffix(option[1:]))):
        pytest.skip(reason)
    env = {"P": GROWING, "MIB": str(mebibytes), "SHARING": sharing}
    done = shell(f'$ft 1x-default{option} --json -- {sys.executable} -c "$P"', **env)
    document = json.loads(done.stderr)
    (placement,) = document["placement_found"]
    seen = 4096 * sum(placement["pages"].values())
    assert done.returncode == 0
    assert document["peak_bytes"] > mebibytes << 20
    words = {"verified"} if seen > mebibytes << 19 else {"unverified"}
    # Pages of files, less than 32 MiB here, count too, so either is right just below half.
    assert document["placement"] in (words | {"verified"} if seen > (mebibytes - 32) << 19 else words), document
    assert (placement["seen_share"] >= 0.5) == (document["placement"] == "verified")


#: A program that glibc 2.36 gives no huge pages: it takes the host's setting for unknown, because its buffer on
#: the stack has no end.
UNCLEAN = """\
#include <stdlib.h>
#include <string.h>
static void fill(void)
{
    volatile char stack[65536];
    for (int i = 0; i < 65536; i++) stack[i] = -1;
}
char *block;
int program(void)
{
    fill();
    block = malloc(64 << 20);
    memset(block, 1, 64 << 20);
    return block[5] - 1;
}
"""
#: Waits after the program, whose memory it keeps.
WAITING = """\
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
int program(int, char **);
int main(int argc, char **argv)
{
    int status = program(argc, argv);
    char held[64];
    snprintf(held, sizeof held, "held-%d", getpid());
    return status || mkfifo(held, 0600) || read(open(held, O_RDONLY), held, 1);
}
"""


@huge_pages.needed()
def test_huge_pages_of_programs_to_which_the_first_tunable_gives_none(folder):
    if reason := memory_options.refusal(("thp",)):
        pytest.skip(reason)
    (folder / "unclean.c").write_text(UNCLEAN)
    (folder / "waiting.c").write_text(WAITING)
    for source in ("unclean.c", paths.ROOT / "bench" / "hash_join.c"):
        subprocess.run(["cc", "-O1", "-pthread", "-c", "-Dmain=program", "-o", "program.o", source], check=True)
        subprocess.run(["cc", "-pthread", "-o", Path(source).stem, "program.o", "waiting.c"], check=True)
    # The hash join has small blocks in the arenas of two threads.
    for program in ("./unclean", "./hash_join rows 64 4000000 2"):
        document = json.loads(shell(f"$ft 1x-default+thp --json -- {program}").stderr.splitlines()[-1])
        assert document["placement"] == "verified", document["reason"]
        memory = document["placement_found"][0]["memory"]
        assert memory["huge_bytes"] > 0.9 * memory["anonymous_bytes"] > 32 << 20


def test_an_option_that_is_requested_and_not_obtained_is_invalid(folder):
    if reason := memory_options.refusal(("thp",)):
        pytest.skip(reason)
    # A program that forbids huge pages after its first 2 MiB.
    program = "import ctypes; ctypes.CDLL(None).prctl(41, 1, 0, 0, 0); " + HOLDING
    result, document = held(folder, "thp", program)
    assert (result.returncode, document["placement"]) == (1, "invalid")
    assert re.match(r"thp was requested, but \d (MiB|B) of [67]\d(\.\d)? MiB are in", document["reason"])
