# SPDX-License-Identifier: Apache-2.0
"""``firsttouch measure`` with the real benchmarks, and with broken ones."""

import json
import shutil
from pathlib import Path

import pytest

from firsttouch import records
from firsttouch.measure import likwid, lmbench
from firsttouch.topology import load

pytestmark = pytest.mark.integration

HOST = load()
STORED = Path(__file__).parents[1] / "golden"
NODE, BANK = HOST.cpu_nodes[0], HOST.memory_nodes[0]


@pytest.fixture
def measure(firsttouch, tmp_path):
    """Returns a function that measures one aspect once, and the file of its records."""
    file = tmp_path / "records.jsonl"

    def run(aspect, *more, environment=None):
        options = ["--repetitions=1", f"--records={file}", f"--banks={BANK}", "--json", *more]
        return firsttouch("measure", aspect, *options, **(environment or {})), file

    return run


def checked(done, file):
    """Return the records of a run that went well: as many on the output as in the file, all valid."""
    assert done.returncode == 0, done
    found = records.read(file)
    assert [json.loads(json.dumps(r.to_dict())) for r in found] == json.loads(done.stdout)
    for record in found:
        assert (record.status, record.reason) == ("valid", "")
        assert record.value > 0
    return found


def test_topology(measure):
    found = {r.metric: r.value for r in checked(*measure("topology"))}
    assert found["numa_nodes"] == len(HOST.numa_nodes)
    assert found["pus"] == len(HOST.allowed_pus)
    assert found["memory"] > 0


@pytest.mark.skipif(shutil.which("likwid-bench") is None, reason="likwid-bench is not on PATH")
@pytest.mark.parametrize("threads", sorted({1, len(HOST.allowed_pus)}))
def test_contention(measure, threads):
    found = {r.metric: r for r in checked(*measure("contention", f"--threads={threads}"))}
    total, each = found["total_bandwidth"], found["thread_bandwidth"]
    assert total.value == pytest.approx(threads * each.value)
    assert total.parameters["threads"] == threads
    for asked, seen in zip(total.placement_asked, total.placement_found, strict=True):
        assert len(asked["pus"]) == threads
        assert set(seen["pus"]) <= set(asked["pus"])
        assert seen["policy"].startswith("bind:")
        assert set(seen["pages"]) == {str(BANK)}


PROGRAMS = {"latency": "lat_mem_rd", "bandwidth": "likwid-bench", "contention": "likwid-bench"}
LIST = '[ "$1" = -a ] && printf "copy - x\\nstream - x\\n" && exit 0\n'


@pytest.mark.parametrize("aspect", PROGRAMS)
@pytest.mark.parametrize(
    "broken",
    [
        ("exit 7", "ended with status 7: it said nothing"),
        ("echo cannot >&2; exit 1", "ended with status 1: cannot"),
        ("kill -SEGV $$", "ended with signal SIGSEGV"),
        ("exit 0", "printed no curve|did not use"),
        ("echo nonsense; echo nonsense >&2", "printed no curve|did not use"),
        ("cat $golden | head -n 14; cat $golden | head -n 14 >&2", "not whole|printed no rate|did not use"),
    ],
)
def test_broken_benchmarks(measure, stand_in, aspect, broken):
    script, reason = broken
    stored = STORED / ("lat_mem_rd_random.txt" if aspect == "latency" else "likwid_scale_avx512.txt")
    stand_in(PROGRAMS[aspect], LIST + script.replace("$golden", str(stored)))
    done, file = measure(aspect)
    assert (done.returncode, done.stdout) == (1, "")
    last = done.stderr.splitlines()[-1]
    assert last.startswith("firsttouch: error: ")
    assert any(r in last for r in reason.split("|")), last
    assert not file.exists()


@pytest.mark.skipif(shutil.which("likwid-bench") is None, reason="likwid-bench is not on PATH")
@pytest.mark.skipif(shutil.which("gcc") is None, reason="likwid-bench assembles our kernels with gcc")
def test_bandwidth_and_a_broken_stream(measure, stand_in):
    """likwid-bench's records are there; STREAM gives none, and the command says so."""
    stand_in("stream", "echo 'Copy:  100.0  0.1 0.1 0.1'")
    done, file = measure("bandwidth", f"--pu-nodes={NODE}")
    assert (done.returncode, done.stdout) == (1, "")
    assert "stream printed no rates" in done.stderr.splitlines()[-1]
    found = records.read(file)
    assert {r.parameters["program"] for r in found} == {"likwid-bench"}
    wide = likwid.widest(likwid.processor_flags(), likwid.available())
    assert {r.parameters["kernel"] for r in found} == set(likwid.KERNELS if wide else ("copy", "triad"))
    assert {r.metric for r in found} == {f"{r.parameters['kernel']}_bandwidth" for r in found}
    assert all(r.parameters["instructions"] == (wide or "scalar") for r in found)
    assert {(r.status, r.reason) for r in found} == {("valid", "")}


def test_benchmarks_that_are_missing(measure, tmp_path):
    (tmp_path / "bare").mkdir()
    for program in ("lstopo-no-graphics", "numactl", "gcc"):
        if shutil.which(program):
            (tmp_path / "bare" / program).symlink_to(shutil.which(program))
    done, file = measure("bandwidth", environment={"PATH": str(tmp_path / "bare")})
    assert (done.returncode, done.stdout) == (3, "")
    assert "firsttouch: error: 'likwid-bench' is not on PATH" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not file.exists()


def test_a_benchmark_that_moves_itself_is_invalid(measure, stand_in):
    """It binds itself to one PU while it should use two."""
    if len(HOST.usable_pus(NODE)) < 2 or shutil.which("likwid-bench") is None:
        pytest.skip("there are no two PUs, or no likwid-bench")
    real, (pu, other) = shutil.which("likwid-bench"), HOST.usable_pus(NODE)[:2]
    stand_in("likwid-bench", f'[ "$1" = -a ] && exec {real} -a\nexec taskset -c {other} {real} "$@"')
    # Asked for is the first PU alone: the other one is a stray.
    done, file = measure("contention", "--threads=1")
    assert done.returncode == 1, done
    assert {r.status for r in records.read(file)} == {"invalid"}
    assert f"threads may run on PUs {other}, asked for were {pu}" in done.stderr.splitlines()[-1]


def test_the_program_for_latency_is_found_where_debian_hides_it():
    if not shutil.which("lat_mem_rd") and not lmbench.Path("/usr/lib/lmbench").exists():
        pytest.skip("lmbench is not installed")
    assert lmbench.program().endswith("lat_mem_rd")
