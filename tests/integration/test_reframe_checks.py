# SPDX-License-Identifier: Apache-2.0
"""The checks in reframe/, run by the real ReFrame: broken programs fail, and unsupported checks are skipped."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from factories.processes import REFRAME, run_reframe
from firsttouch import paths
from firsttouch.records import schema
from firsttouch.systems import draft

pytestmark = [pytest.mark.usefixtures("quiet_host"), pytest.mark.timeout(300, func_only=True)]

#: A host of sixteen NUMA nodes, different from any host that runs these tests.
PUS = len(os.sched_getaffinity(0))
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
    command = ["run", "4096x-bound", "--aligner", "bwa-mem", "--dataset", "lambda"]


# ReFrame walks through the stack, for 8 ms, at each read of a deprecated variable, and reads all of each check.
assert not [name for name, var in crowded.var_space.items() if var.is_deprecated()]
"""
#: Checks whose command copies the records of the files that FILES names by the names of the checks.
STORED = """\
# SPDX-License-Identifier: Apache-2.0
import reframe as rfm
from reframe.core.builtins import run_after

from firsttouch.benchmarks.checks import FirstTouchCheck


class Stored(FirstTouchCheck):
    @run_after("setup")
    def copy_records(self):
        self.executable, self.executable_opts = "cp", [FILES[self.name], "records.jsonl"]


@rfm.simple_test
class measured(Stored):
    pass


@rfm.simple_test
class emulated(Stored):
    pass
"""


@pytest.fixture
def reframe(tmp_path, lambda_part, native_probe):
    """Returns a function that runs checks on a system; its *probe* is the native one, built from this checkout."""
    systems = tmp_path / "systems"
    systems.mkdir()
    (systems / "local.yaml").write_text(draft.draft_host("local"))

    def run(pattern, *files, system="local", **environment):
        given = {
            "FIRSTTOUCH_SYSTEMS": str(systems),
            **lambda_part,
            "FIRSTTOUCH_MEASURED_ALIGNERS": "bwa-mem",  # every aligner would fail in the same way
            **environment,
        }
        done = run_reframe(tmp_path, files, pattern, system=system, environment=given, timeout=250)
        assert (done.status == 0) == (set(done.results.values()) <= {"pass", "skip"})
        return done

    run.systems = systems
    run.probe = str(native_probe)
    return run


def test_what_works_passes(reframe, stand_in, tmp_path):
    # Short measurements of all aspects but latency, whose curve is judged below.
    short = f'case "$1" in latency|topology) exec {reframe.probe} "$@" ;; esac\nexec {reframe.probe} "$@" --sanity'
    short_probe = stand_in("short-probe", short)
    chosen = (
        "^topology$|^bandwidth%set_size=1$|^latency%|^contention$|^stores$|^loaded_latency$|^core_to_core$|^pages$"
    )
    chosen += f"|^correctness$|^cores$|^tails$|^locks$|^scaling%scenario=1x{PUS}-default%"
    files = ("aspects", "bandwidth", "latency", "scaling")
    done = reframe(chosen, *files, FIRSTTOUCH_EFFORT="smoke", FIRSTTOUCH_PROBE=str(short_probe))
    assert len(done.results) >= len(chosen.split("|")), done.output
    results = dict(done.results)
    if len(os.sched_getaffinity(0)) == 1:
        assert {results.pop("loaded_latency"), results.pop("core_to_core")} == {"skip"}, done.output
    assert set(results.values()) == {"pass"}, done.output
    assert any(name.startswith(f"scaling %scenario=1x{PUS}-default ") for name in done.results)
    assert "topology" in done.results
    assert "P: alignment_time: " in done.output
    assert "P: copy_from" in done.output
    assert "P: latency_from" in done.output
    assert "P: copy_plain_regular" in done.output
    assert "P: prefetch_ratio_bank" in done.output
    assert "P: records_queue_batched_work0ns_batch32: " in done.output
    kept = list((tmp_path / "out").rglob("records.jsonl"))
    assert len(kept) >= len(done.results) - 2  # HostOfRun measures nothing, and ReferenceRun checks alignments
    _is_a_whole_curve([r for r in schema.collect(kept) if r.check == "latency"])
    # The reference run has the same scenario, and its time is not a result.
    assert [r.metric for r in schema.collect(kept) if r.check == "scaling"] == ["alignment_time"]
    assert all("env_vars" in case and "variables" not in case for case in done.cases.values())


def _is_a_whole_curve(records):
    first = records[0].placement_asked
    sizes = [r.parameters["size_bytes"] for r in records if r.placement_asked == first]
    assert sorted(sizes) == sorted(set(sizes))
    assert min(sizes) == 4096
    assert len(sizes) >= 12
    assert {(r.status, r.metric, r.parameters["program"], r.parameters["effort"]) for r in records} == {
        ("valid", "random_latency", "firsttouch-probe", "smoke")
    }
    assert all(r.value > 0 for r in records)


def assert_failed(done):
    """Check that all cases failed. A scenario's check does not start if the reference run failed."""
    for name, result in done.results.items():
        expected = {"HostOfRun": "pass", "scaling": "fail_deps"}.get(name.split()[0], "fail")
        assert result == expected, done.output


CHECKS = (
    f"^bandwidth_others%program=likwid-bench$|^contention$|^latency_lmbench$|^scaling%scenario=1x{PUS}-default%"
)
FILES = ("aspects", "bandwidth", "latency", "scaling")
LIST = '[ "$1" = -a ] && printf "copy - x\\nstream - x\\n" && exit 0\n'


def test_what_is_broken_fails(reframe, stand_in):
    """Every check fails, not only the reference run, on which the scenarios' checks depend."""
    # The version of bwa, and the index that an earlier test need not have built.
    version = f'[ $# = 0 ] || [ $1 = index ] && exec {shutil.which("bwa")} "$@"\n'
    for program, head in (("bwa", version), ("likwid-bench", LIST), ("lat_mem_rd", "")):
        stand_in(program, f"{head}exit 7")
    broken = stand_in("broken-probe", f'[ "$1" = topology ] && exec {reframe.probe} "$@"\nexit 7')
    done = reframe(CHECKS, *FILES, FIRSTTOUCH_PROBE=str(broken))
    assert_failed(done)
    for check in ("bandwidth", "contention", "latency", "scaling"):
        assert any(name.startswith(check) for name in done.results), done.output
    text = " ".join(done.reasons.values())
    assert all(f"{program} ended with status 7" in text for program in ("likwid-bench", "firsttouch-probe")), text


def test_a_scenario_that_breaks_after_the_reference_run_fails(reframe, stand_in, tmp_path):
    bwa, once = shutil.which("bwa"), tmp_path / "once"
    # It may have to build the index first.
    stand_in("bwa", f'[ "$1" = mem ] || exec {bwa} "$@"\n[ -e {once} ] && exit 7\ntouch {once}\nexec {bwa} "$@"')
    done = reframe(f"^scaling%scenario=1x{PUS}-default%", "scaling")
    for name, result in done.results.items():
        assert result == ("fail" if name.startswith("scaling") else "pass"), done.output
        assert "ended with status 7" in done.reasons[name] or not name.startswith("scaling")


def test_what_is_missing_fails(reframe, tmp_path):
    folder = tmp_path / "bare"
    folder.mkdir()
    for program in ("bash", "sh", "cat", "hostname", "numactl"):
        if shutil.which(program):
            (folder / program).symlink_to(shutil.which(program))
    checks = CHECKS.replace("|^latency_lmbench$", "").replace("|^contention$", "")
    done = reframe(checks, *FILES, PATH=str(folder), FIRSTTOUCH_PROBE=reframe.probe)
    assert_failed(done)
    text = " ".join(done.reasons.values())
    assert "exit status 3: firsttouch: error: 'likwid-bench' is not on PATH" in text
    assert "exit status 3: firsttouch: error: 'bwa' is not on PATH" in text
    # Without the probe, nothing is known about the host, so that the checks do not start.
    done = reframe("^contention$", "aspects", FIRSTTOUCH_PROBE=str(folder / "none"))
    assert {name.split()[0]: result for name, result in done.results.items()} == {
        "HostOfRun": "fail",
        "contention": "fail_deps",
    }
    text = " ".join(done.reasons.values())
    assert f"FIRSTTOUCH_PROBE names {folder / 'none'}, which is not a program" in text


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two PUs")
def test_a_placement_that_did_not_hold_fails(reframe, stand_in):
    bwa = shutil.which("bwa")
    pu = min(os.sched_getaffinity(0))
    stand_in("bwa", f'[ $# = 0 ] && exec {bwa}\nexec taskset -c {pu} {bwa} "$@"')
    done = reframe(f"^scaling%scenario=1x{PUS}-default%", "scaling")
    assert_failed(done)
    assert any("threads are held on PUs" in reason for reason in done.failures), done.reasons


def test_what_cannot_be_done_here_is_skipped_with_the_reason(reframe, tmp_path):
    """The scenarios have more instances than the host has PUs."""
    (tmp_path / "crowded.py").write_text(CROWDED)
    done = reframe("crowded", tmp_path / "crowded")
    assert done.results["crowded"] == "skip", done.output
    pus = len(os.sched_getaffinity(0))
    reason = f"scenario 4096x-bound: the {pus} PUs that may be used do not divide into 4096 equal parts"
    assert reason in done.output


SITE = """\
site_configuration = {
    "systems": [{
        "name": "mycluster", "hostnames": [".*"], "partitions": [{
            "name": "cpu", "scheduler": "local", "launcher": "local", "environs": ["gnu"],
            "processor": {"num_cpus": 1}, "extras": {EXTRAS},
        }],
    }],
    "environments": [{"name": "gnu", "cc": "gcc"}],
}
"""


def test_a_configuration_of_the_site_with_other_names(reframe, tmp_path):
    site = tmp_path / "site_settings.py"
    site.write_text(SITE.replace("EXTRAS", "'firsttouch_system': 'local'"))
    chosen = {"FIRSTTOUCH_PROBE": reframe.probe, "RFM_CONFIG_FILES": str(site)}
    done = reframe("^topology$", "aspects", system="mycluster", **chosen)
    assert set(done.results.values()) == {"pass"}, done.output
    case = done.cases["topology"]
    assert set(case["tags"]) == {"topology", "quick", "production"}
    assert case["maintainers"]
    records = schema.collect(list(tmp_path.rglob("output/mycluster/**/records.jsonl")))
    assert {(r.system, r.partition) for r in records} == {("local", "cpu")}


def test_a_system_of_the_site_without_a_file_is_one_line(tmp_path):
    site = tmp_path / "site_settings.py"
    site.write_text(SITE.replace("EXTRAS", ""))
    argv = [REFRAME, "-C", site, "-c", paths.ROOT / "reframe", "-l", "--system", "mycluster"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr
    assert done.stderr.splitlines()[-1].startswith("firsttouch: error: no system 'mycluster': there are ")


def test_variables_that_a_user_sets_hold_and_small_efforts_warn_of_nothing(tmp_path):
    argv = [REFRAME, "-c", paths.ROOT / "reframe", "--describe", "-n", "^contention", "--system", "local"]
    argv += ["-S", "contention.time_limit=10m", "-S", "contention.repetitions=2"]
    env = {**os.environ, "RFM_CONFIG_FILES": str(paths.SETTINGS), "FIRSTTOUCH_EFFORT": "quick"}
    done = subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    described = {check["name"]: check for check in json.loads(done.stdout)}
    assert [described["contention"][key] for key in ("time_limit", "repetitions")] == [600, 2]
    assert "WARNING" not in done.stdout + done.stderr


def test_stream_is_built_by_spack_from_our_recipe(tmp_path):
    check = paths.ROOT / "contrib" / "reframe" / "stream_by_spack.py"
    argv = [REFRAME, "-c", check, "--dry-run", "--system", "local", "-S", "array_size=1000"]
    env = {**os.environ, "RFM_CONFIG_FILES": str(paths.SETTINGS), "FIRSTTOUCH_OUT": str(tmp_path)}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout
    (script,) = tmp_path.rglob("rfm_build.sh")
    text = script.read_text()
    assert "add firsttouch.stream@5.10+openmp stream_array_size=1000" in text
    (recipes,) = re.findall("repo add (.*)", text)
    assert (Path(recipes) / "packages" / "stream" / "package.py").is_file()


def test_of_an_emulated_host_only_counts_are_compared_with_references(reframe, run_here, tmp_path):
    """Its memory, too, is far below the reference."""
    measured, emulated = tmp_path / "measured.jsonl", tmp_path / "emulated.jsonl"
    assert run_here("measure", "topology", "--records", measured, FIRSTTOUCH_PROBE=reframe.probe).returncode == 0
    records = [json.loads(line) for line in measured.read_text().splitlines()]
    (nodes,) = [record["value"] for record in records if record["metric"] == "numa_nodes"]
    file = reframe.systems / "local.yaml"
    of_topology = '{{check: topology, metric: {}, value: {}, tolerance: {{lower: "-3 %"}}, source: "made up"}}'
    references = [of_topology.format("numa_nodes", round(nodes)), of_topology.format("memory", '"512 TiB"')]
    drafted = file.read_text()
    file.write_text(drafted.replace("references: []", f"references: [{', '.join(references)}]"))
    assert file.read_text() != drafted
    software = [{**record["software"], "emulator": "QEMU with tcg"} for record in records]
    lines = [json.dumps({**record, "software": of_it}) for record, of_it in zip(records, software, strict=True)]
    emulated.write_text("".join(f"{line}\n" for line in lines))
    files = {"measured": str(measured), "emulated": str(emulated)}
    (tmp_path / "stored.py").write_text(STORED.replace("FILES", repr(files)))
    done = reframe("^measured$|^emulated$", tmp_path / "stored")
    assert (done.results["measured"], done.results["emulated"]) == ("fail", "pass"), done.output
    assert done.output.count("is emulated (QEMU with tcg): its speed is not judged") == 1


def test_a_host_of_another_system_fails_once_and_nothing_else_runs(reframe):
    (reframe.systems / "large.yaml").write_text(LARGE)
    done = reframe("^placement|^topology$|^contention$", "placement", "aspects", system="large")
    (reason,) = done.failures
    assert re.fullmatch(r"sanity error: this host has \d+ NUMA nodes?, large has 16", reason)
    assert len(done.results) > 3
    assert set(done.results.values()) == {"fail", "fail_deps"}


def test_a_system_of_a_cluster_without_slurm_fails_once(reframe, tmp_path):
    folder = tmp_path / "bare"
    folder.mkdir()
    (folder / "bash").symlink_to(shutil.which("bash"))
    done = reframe("^topology$|^contention$", "aspects", system="amd-opteron", PATH=str(folder))
    (reason,) = done.failures
    partition = "amd-opteron:exclusive"
    assert reason.endswith(f"partition {partition} submits through Slurm, and 'sbatch' is not on PATH")
    assert set(done.results.values()) == {"fail", "fail_deps"}
