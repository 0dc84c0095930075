# SPDX-License-Identifier: Apache-2.0
"""``firsttouch measure`` with the real benchmarks, and with broken ones."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from factories.host_records import measured
from factories.processes import wait_until, write_program
from firsttouch.benchmarks import likwid, lmbench, programs, stream
from firsttouch.host import emulation
from firsttouch.host.topology import load

pytestmark = [pytest.mark.usefixtures("quiet_host"), pytest.mark.timeout(300, func_only=True)]

HOST = load()
STORED = Path(__file__).parents[1] / "golden"
NODE, BANK = HOST.cpu_nodes[0], HOST.memory_nodes[0]


def options_of(aspect, file, more):
    """Return the options that measure one aspect once on one bank into *file*."""
    options = [aspect, "--repetitions=1", f"--records={file}", "--json", *more]
    return [*options, f"--banks={BANK}"] if aspect != "topology" else options


@pytest.fixture
def measure(run_here, tmp_path, native_probe, monkeypatch):
    """Returns a function that measures one aspect once on one bank, and the file of its records.

    Arrays of other programs than the probe are small, but large enough for their threads to be sampled.
    """
    monkeypatch.setattr(programs, "_array_bytes", lambda *_: 24 << 20)
    file = tmp_path / "records.jsonl"

    def run(aspect, *more, environment=None):
        environment = {"FIRSTTOUCH_PROBE": str(native_probe), "FIRSTTOUCH_EFFORT": "quick"} | (environment or {})
        return run_here("measure", *options_of(aspect, file, more), **environment), file

    return run


@pytest.fixture
def measure_here(run_cli, tmp_path, native_probe, monkeypatch):
    """Returns a function like ``measure`` that runs in this process."""
    file = tmp_path / "records.jsonl"
    monkeypatch.setenv("FIRSTTOUCH_PROBE", str(native_probe))
    monkeypatch.setenv("FIRSTTOUCH_EFFORT", "smoke")

    def run(aspect, *more, environment=None):
        for name, value in (environment or {}).items():
            monkeypatch.setenv(name, value)
        return run_cli("measure", *options_of(aspect, file, more)), file

    return run


def checked(done, file):
    """Return the records of a successful run: all are valid, and output and file have the same number."""
    records = read_back(done, file)
    for record in records:
        assert (record.status, record.reason) == ("valid", "")
        assert record.value > 0
    return records


def test_topology(measure):
    by_metric = {r.metric: r for r in read_back(*measure("topology"))}
    assert by_metric["numa_nodes"].value == len(HOST.numa_nodes)
    assert by_metric["pus"].value == len(HOST.allowed_pus)
    assert by_metric["memory"].value > 0
    # The firmware's tables depend on the host: either the bandwidth is known, or there is a reason why not.
    availability = by_metric["theoretical_bandwidth_known"]
    assert availability.value in {0, 1}
    assert ("theoretical_bandwidth" in by_metric) == bool(availability.value)
    assert availability.parameters.keys() == ({"source"} if availability.value else {"reason"})


def read_back(done, file):
    assert done.returncode == 0, done
    records = measured(file)
    assert [json.loads(json.dumps(r.to_dict())) for r in records] == json.loads(done.stdout)
    return records


def test_theoretical_bandwidth_of_the_modules(measure, stand_in):
    """Formula 3.1 gives the bandwidth of one package; the report compares the probe's rates with it."""
    stand_in("dmidecode", f"cat {STORED / 'dmidecode_type_17.txt'}")
    by_metric = {r.metric: r for r in read_back(*measure("topology"))}
    packages = len({pu.package for pu in HOST.pus})
    theoretical = by_metric["theoretical_bandwidth"]
    assert theoretical.value == pytest.approx(102.4 / packages)
    assert theoretical.parameters["source"] == "SMBIOS"
    assert theoretical.parameters["packages"] == packages


def test_bandwidth_by_the_probe(measure):
    records = checked(*measure("bandwidth", f"--pu-nodes={NODE}"))
    assert [r.metric for r in records] == ["copy_bandwidth", "triad_bandwidth"]  # the metrics of the effort quick
    for record in records:
        parameters = record.parameters
        assert parameters["threads"] == len(HOST.usable_pus(NODE)) == len(record.placement_asked[0]["pus"])
        assert (parameters["stores"], parameters["policy"], parameters["bank"]) == ("regular", "membind", BANK)
        assert parameters["array_bytes"] > 0
        assert record.placement_found[0]["verified"]
        assert record.repetitions == 3
        assert record.software["firsttouch-probe"]


def test_stores_by_instruction_set(measure):
    records = checked(*measure("stores"))
    rates = {
        (r.parameters["instructions"], r.parameters["stores"], r.metric): r for r in records if r.unit == "GB/s"
    }
    assert {(NODE,)} == {tuple(r.parameters["pu_nodes"]) for r in records}
    assert {"stores"} == {r.check for r in records}
    assert ("plain", "streaming", "copy_bandwidth") not in rates
    gains = [r for r in records if r.metric == "streaming_gain"]
    assert [r.parameters["kernel"] for r in gains] == ["copy", "triad"]
    for gain in gains:
        metric = f"{gain.parameters['kernel']}_bandwidth"
        for stores in ("regular", "streaming"):
            fastest = rates[gain.parameters[f"fastest_{stores}"], stores, metric]
            assert fastest.value == max(r.value for k, r in rates.items() if k[1:] == (stores, metric))
        streaming, regular = (
            rates[gain.parameters[f"fastest_{s}"], s, metric].samples for s in ("streaming", "regular")
        )
        assert gain.samples == pytest.approx([s / r for s, r in zip(streaming, regular, strict=True)])


def test_contention(measure):
    counts = sorted({1, len(HOST.allowed_pus)})
    threads = ",".join(map(str, counts))
    records = checked(*measure("contention", f"--threads={threads}"))
    assert sorted({r.parameters["threads"] for r in records}) == counts
    by_case = {(r.metric, r.parameters["threads"], str(r.parameters.get("pu_nodes"))): r for r in records}
    for (metric, number, nodes), total in by_case.items():
        if metric != "total_bandwidth":
            continue
        each = by_case["thread_bandwidth", number, nodes]
        assert total.value == pytest.approx(number * each.value)


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (["latency", "--program=stream"], "stream does not measure latency: firsttouch-probe and lmbench can"),
        (["bandwidth", "--set-sizes=99"], "--set-sizes: 99; there are"),
        (["pages", "--pu-nodes=99"], "there is no NUMA node 99"),
        (["bandwidth", "--threads=1"], "--threads is not an option of bandwidth, but of contention and locks"),
        (["bandwidth", "--order=random"], "--order is not an option of bandwidth, but of latency"),
        (["contention", "--threads=0,1"], "0 threads: this process may use 1 to"),
        (["locks", "--threads=1,9999"], "9999 threads: NUMA nodes"),
    ],
)
def test_what_cannot_be_asked_for(measure_here, argv, reason):
    done, file = measure_here(*argv)
    assert (done.status, done.out) == (2, "")
    assert reason in done.err
    assert done.err.count("\n") == 1
    assert not file.exists()


#: Runs the probe in argv and passes on the number of lines in the word before it. The probe then waits, as the
#: pipe is full. After SIGINT, which the probe gets, it passes on the other lines.
HELD_PROBE = """\
import fcntl, os, signal, subprocess, sys
if sys.argv[3] == "topology":
    os.execv(sys.argv[2], sys.argv[2:])
read_end, write_end = os.pipe()
fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, 4096)
probe = subprocess.Popen(sys.argv[2:], stdout=write_end)
os.close(write_end)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
lines = open(read_end, "rb", buffering=0)
for _ in range(int(sys.argv[1])):
    os.write(1, lines.readline())
signal.sigwait([signal.SIGINT])
probe.send_signal(signal.SIGINT)
os.write(1, lines.read())
sys.exit(probe.wait())
"""


def test_an_interrupted_probe_leaves_what_it_measured(native_probe, tmp_path):
    """The file has the completed measurements only, and the exit status reports the interrupt."""
    file = tmp_path / "records.jsonl"
    argv = [
        Path(sys.executable).with_name("firsttouch"),
        "measure",
        "latency",
        f"--banks={BANK}",
        f"--records={file}",
    ]
    (tmp_path / "held.py").write_text(HELD_PROBE)
    held = write_program(tmp_path / "held", f'exec {sys.executable} {tmp_path}/held.py 4 {native_probe} "$@"')
    with subprocess.Popen(
        [*argv, f"--pu-nodes={NODE}"],
        env={**os.environ, "FIRSTTOUCH_PROBE": str(held)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_until(lambda: file.exists() and file.stat().st_size, "the first record")
        process.send_signal(signal.SIGTERM)
        _, messages = process.communicate(timeout=120)
    assert process.returncode == 143, messages
    assert messages.splitlines()[-1] == "firsttouch: interrupted"
    records = measured(file)
    assert 0 < len(records) < 31
    assert {r.status for r in records} == {"valid"}


PROGRAMS = {
    "latency": ("lmbench", "lat_mem_rd"),
    "bandwidth": ("likwid-bench",) * 2,
}
LIST = '[ "$1" = -a ] && printf "copy - x\\nstream - x\\n" && exit 0\n'


@pytest.mark.parametrize("aspect", PROGRAMS)
@pytest.mark.parametrize(
    "broken",
    [
        ("exit 7", "ended with status 7: it printed nothing"),
        ("echo cannot >&2; exit 1", "ended with status 1: cannot"),
        ("kill -SEGV $$", "ended with signal SIGSEGV"),
        ("exit 0", "printed no curve|did not use"),
        ("echo nonsense; echo nonsense >&2", "printed no curve|did not use"),
        ("cat $golden | head -n 14; cat $golden | head -n 14 >&2", "incomplete|printed no rate|did not use"),
    ],
)
def test_broken_benchmarks(measure_here, stand_in, aspect, broken):
    script, reason = broken
    stored = STORED / ("lat_mem_rd_random.txt" if aspect == "latency" else "likwid_scale_avx512.txt")
    name, program = PROGRAMS[aspect]
    stand_in(program, LIST + script.replace("$golden", str(stored)))
    done, file = measure_here(aspect, f"--program={name}")
    assert (done.status, done.out) == (1, "")
    last = done.err.splitlines()[-1]
    assert last.startswith("firsttouch: error: ")
    assert any(r in last for r in reason.split("|")), last
    assert not file.exists()


@pytest.mark.skipif(shutil.which("likwid-bench") is None, reason="likwid-bench is not on PATH")
def test_bandwidth_by_likwid_bench(measure):
    done = measure(
        "bandwidth", "--program=likwid-bench", f"--pu-nodes={NODE}", environment={"FIRSTTOUCH_EFFORT": ""}
    )
    records = checked(*done)
    assert {r.parameters["program"] for r in records} == {"likwid-bench"}
    wide = likwid.widest(likwid.processor_flags(), likwid.available())
    assert {r.parameters["kernel"] for r in records} == {"copy", "triad"}
    assert {r.metric for r in records} == {f"{r.parameters['kernel']}_bandwidth" for r in records}
    assert all(r.parameters["instructions"] == (wide or "scalar") for r in records)


def test_a_broken_stream_and_none(measure_here, stand_in):
    argv = ("bandwidth", "--program=stream", f"--pu-nodes={NODE}")
    if stream.program() is None:
        done, file = measure_here(*argv)
        assert (done.status, done.out) == (3, "")
        assert done.err.startswith("firsttouch: cannot be done here: there is no program 'stream'")
    stand_in("stream", "echo 'Copy:  100.0  0.1 0.1 0.1'")
    done, file = measure_here(*argv)
    assert (done.status, done.out) == (1, "")
    assert "stream printed no rates" in done.err.splitlines()[-1]
    assert not file.exists()


def test_benchmarks_that_are_missing(measure_here, tmp_path):
    (tmp_path / "bare").mkdir()
    for program in ("numactl", "gcc"):
        if shutil.which(program):
            (tmp_path / "bare" / program).symlink_to(shutil.which(program))
    done, file = measure_here("bandwidth", "--program=likwid-bench", environment={"PATH": str(tmp_path / "bare")})
    assert (done.status, done.out) == (3, "")
    assert "firsttouch: error: 'likwid-bench' is not on PATH" in done.err
    assert done.err.count("\n") == 1
    assert not file.exists()


def test_the_probe_alone_measures_an_emulated_host(measure_here, monkeypatch):
    monkeypatch.setattr(emulation, "emulator", lambda: "QEMU with tcg")
    done, file = measure_here("bandwidth", "--program=likwid-bench")
    assert (done.status, file.exists()) == (3, False)
    assert "only the probe measures an emulated host" in done.err


def test_a_benchmark_that_moves_itself_is_invalid(measure_here, stand_in):
    """The program binds itself to one PU although it should use two."""
    if len(HOST.usable_pus(NODE)) < 2 or shutil.which("likwid-bench") is None:
        pytest.skip("needs two PUs of one NUMA node, and likwid-bench")
    real, pu = shutil.which("likwid-bench"), HOST.usable_pus(NODE)[0]
    stand_in("likwid-bench", f'[ "$1" = -a ] && exec {real} -a\nexec taskset -c {pu} {real} "$@"')
    done, file = measure_here("bandwidth", "--program=likwid-bench", f"--pu-nodes={NODE}")
    assert done.status == 1, done
    assert {r.status for r in measured(file)} == {"invalid"}
    assert "something else pins them as well" in done.err.splitlines()[-1]


def test_the_program_for_latency_is_found_where_debian_hides_it():
    if not shutil.which("lat_mem_rd") and not lmbench.Path("/usr/lib/lmbench").exists():
        pytest.skip("lmbench is not installed")
    assert lmbench.program().endswith("lat_mem_rd")
