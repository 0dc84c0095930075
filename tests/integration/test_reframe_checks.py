# SPDX-License-Identifier: Apache-2.0
"""The checks in reframe/, run by the real ReFrame: what is broken fails, what cannot be done here is skipped."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from firsttouch import paths
from firsttouch.benchmarks import probe
from firsttouch.systems import draft

pytestmark = pytest.mark.integration

REFRAME = Path(sys.executable).with_name("reframe")
#: A host of sixteen NUMA nodes, which no host that runs these tests needs to be.
LARGE = """\
# SPDX-License-Identifier: Apache-2.0
name: large
description: "a host with more than this one has"
hostnames: ["large"]
facts:
  source: "made up for a test"
  processor: "none"
  packages: 8
  numa_nodes: 16
  cores_per_numa_node: 1
  threads_per_core: 1
  memory_per_numa_node: "1 GiB"
partitions:
  - name: default
    description: "this host"
    scheduler: local
    launcher: local
    max_jobs: 1
    environs: [builtin]
"""
CROWDED = """\
# SPDX-License-Identifier: Apache-2.0
import reframe as rfm

from firsttouch.benchmarks.checks import FirstTouchCheck


@rfm.simple_test
class crowded(FirstTouchCheck):
    command = ["run", "4096Inst_Original", "--aligner", "bwa-mem", "--dataset", "lambda"]
"""


@pytest.fixture
def reframe(tmp_path, lambda_work):
    """Returns a function that runs checks on a system and returns (result, reason) by the checks' names.

    Its *probe* is the native one, built from this checkout.
    """
    systems = tmp_path / "systems"
    systems.mkdir()
    (systems / "local.yaml").write_text(draft.of_this_host("local"))
    prefix, _, _ = lambda_work

    def run(pattern, *files, system="local", **environment):
        report = tmp_path / "report.json"
        options = [o for f in files for o in ("-c", paths.ROOT / "reframe" / f"{f}.py")]
        argv = [REFRAME, "--nocolor", *options, "-r", "--system", system, "-n", pattern, "-S", "repetitions=1"]
        argv += ["--report-file", report, "--exec-policy", "serial"]
        done = subprocess.run(
            argv,
            cwd=tmp_path,
            env={
                **os.environ,
                "RFM_CONFIG_FILES": str(paths.SETTINGS),
                "FIRSTTOUCH_SYSTEMS": str(systems),
                "FIRSTTOUCH_OUT": str(tmp_path / "out"),
                "FIRSTTOUCH_DATA": str(prefix.parents[2]),
                "FIRSTTOUCH_ALIGNERS": "bwa-mem",  # each would be broken in the same way
                **environment,
            },
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
        )
        cases = [c for r in json.loads(report.read_text())["runs"] for c in r["testcases"]]
        assert cases, done.stdout
        found = {c["display_name"]: (c["result"], c["fail_reason"] or "") for c in cases}
        assert (done.returncode == 0) == all(result in {"pass", "skip"} for result, _ in found.values())
        return found, done.stdout

    run.systems = systems
    run.probe = str(probe.build(paths.ROOT / ".cache" / "probe"))
    return run


def test_what_works_passes(reframe, tmp_path):
    chosen = "^topology$|^bandwidth%set_size=1$|^latency%|^contention$|^scaling%scenario=1Inst_Original%"
    files = ("topology", "bandwidth", "latency", "contention", "scaling")
    found, said = reframe(chosen, *files, FIRSTTOUCH_EFFORT="quick", FIRSTTOUCH_PROBE=reframe.probe)
    assert len(found) >= len(files), said
    assert {result for result, _ in found.values()} == {"pass"}, said
    assert any(name.startswith("scaling %scenario=1Inst_Original ") for name in found)
    assert "topology" in found
    assert "P: alignment_time: " in said
    assert "P: copy_from" in said
    assert "P: latency_from" in said
    kept = list((tmp_path / "out").rglob("records.jsonl"))
    assert len(kept) >= len(found) - 1  # choosing the host measures nothing


def assert_failed(found, said):
    """All failed; a scenario's check cannot even begin where the reference run did, which ReFrame says so."""
    for name, (result, _) in found.items():
        expected = {"HostOfRun": "pass", "scaling": "fail_deps"}.get(name.split()[0], "fail")
        assert result == expected, said


CHECKS = (
    "^bandwidth_others%program=likwid-bench$|^contention$|^latency_sequential$|^scaling%scenario=1Inst_Original%"
)
FILES = ("bandwidth", "contention", "latency", "scaling")
LIST = '[ "$1" = -a ] && printf "copy - x\\nstream - x\\n" && exit 0\n'


@pytest.mark.parametrize(
    ("script", "reasons"),
    [
        ("exit 7", {"likwid-bench ended with status 7", "firsttouch-probe ended with status 7"}),
        ("echo nonsense; echo nonsense >&2", {"did not use", "no curve", "not a SAM record", "not JSON"}),
        (
            '$real "$@" 2> $err | head -c 200; head -c 200 $err >&2',
            {"likwid-bench", "lat_mem_rd", "aligned 0 of", "printed no report"},
        ),
    ],
    ids=["status", "nonsense", "partial"],
)
def test_what_is_broken_fails(reframe, stand_in, tmp_path, script, reasons):
    """Each check, not the reference run alone, which the scenarios' checks depend on."""
    hidden = sorted(Path("/usr/lib/lmbench/bin").glob("*/lat_mem_rd"))
    real = {
        "bwa": shutil.which("bwa"),
        "likwid-bench": shutil.which("likwid-bench") or "likwid-bench",
        "lat_mem_rd": str(hidden[0]) if hidden else "lat_mem_rd",
        "probe": reframe.probe,
    }
    version = f"[ $# = 0 ] && exec {real['bwa']}\n"
    for program, head in (("bwa", version), ("likwid-bench", LIST), ("lat_mem_rd", "")):
        text = script
        if "$real" in script and program == "lat_mem_rd":  # the whole curve takes minutes
            text = "printf '\"stride=256\\n0.00049 1.000\\n0.000' >&2"
        stand_in(program, head + text.replace("$real", real[program]).replace("$err", str(tmp_path / program)))
    broken = stand_in(
        "broken-probe", script.replace("$real", real["probe"]).replace("$err", str(tmp_path / "probe"))
    )
    found, said = reframe(CHECKS, *FILES, FIRSTTOUCH_PROBE=str(broken))
    assert_failed(found, said)
    for check in FILES:
        assert any(name.startswith(check) for name in found), said
    text = " ".join(reason for _, reason in found.values())
    assert all(reason in text for reason in reasons), text


def test_a_scenario_that_breaks_after_the_reference_run_fails(reframe, stand_in, tmp_path):
    bwa, once = shutil.which("bwa"), tmp_path / "once"
    stand_in("bwa", f'[ $# = 0 ] && exec {bwa}\n[ -e {once} ] && exit 7\ntouch {once}\nexec {bwa} "$@"')
    found, said = reframe("^scaling%scenario=1Inst_Original%", "scaling")
    for name, (result, reason) in found.items():
        assert result == ("fail" if name.startswith("scaling") else "pass"), said
        assert "ended with status 7" in reason or not name.startswith("scaling")


def test_what_is_missing_fails(reframe, tmp_path):
    folder = tmp_path / "bare"
    folder.mkdir()
    for program in ("bash", "sh", "lstopo-no-graphics", "cat", "hostname", "numactl"):
        if shutil.which(program):
            (folder / program).symlink_to(shutil.which(program))
    checks = CHECKS.replace("|^latency_sequential$", "")
    found, said = reframe(checks, *FILES, PATH=str(folder), FIRSTTOUCH_PROBE=str(folder / "none"))
    assert_failed(found, said)
    text = " ".join(reason for _, reason in found.values())
    assert "exit status 3: firsttouch: error: 'likwid-bench' is not on PATH" in text
    assert "exit status 3: firsttouch: error: 'bwa' is not on PATH" in text
    assert (
        f"exit status 3: firsttouch: error: FIRSTTOUCH_PROBE names {folder / 'none'}, which is not a program"
        in text
    )


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one PU only")
def test_a_placement_that_did_not_hold_fails(reframe, stand_in):
    bwa = shutil.which("bwa")
    pu = min(os.sched_getaffinity(0))
    stand_in("bwa", f'[ $# = 0 ] && exec {bwa}\nexec taskset -c {pu} {bwa} "$@"')
    found, said = reframe("^scaling%scenario=1Inst_Original%", "scaling")
    assert_failed(found, said)
    assert any("threads are held on PUs" in reason for _, reason in found.values()), found


def test_what_cannot_be_done_here_is_skipped_with_the_reason(reframe, tmp_path):
    """More instances than the host has PUs."""
    (tmp_path / "crowded.py").write_text(CROWDED)
    found, said = reframe("crowded", tmp_path / "crowded")
    assert found["crowded"][0] == "skip", said
    pus = len(os.sched_getaffinity(0))
    assert (
        f"scenario 4096Inst_Original: the {pus} PUs that may be used do not divide into 4096 equal parts" in said
    )


def test_a_host_of_another_system_fails_once_and_nothing_else_runs(reframe):
    (reframe.systems / "large.yaml").write_text(LARGE)
    found, _ = reframe("^placement|^topology$|^contention$", "placement", "topology", "contention", system="large")
    (reason,) = [reason for result, reason in found.values() if result == "fail"]
    assert re.fullmatch(r"sanity error: this host has \d+ NUMA nodes?, large has 16", reason)
    assert len(found) > 3
    assert {result for result, _ in found.values()} == {"fail", "fail_deps"}


def test_a_system_of_a_cluster_without_slurm_fails_once(reframe, tmp_path):
    folder = tmp_path / "bare"
    folder.mkdir()
    (folder / "bash").symlink_to(shutil.which("bash"))
    found, _ = reframe("^topology$|^contention$", "topology", "contention", system="amd-opteron", PATH=str(folder))
    (reason,) = [reason for result, reason in found.values() if result == "fail"]
    partition = "amd-opteron:exclusive"
    assert reason.endswith(f"partition {partition} submits through Slurm, and 'sbatch' is not on PATH")
    assert {result for result, _ in found.values()} == {"fail", "fail_deps"}
