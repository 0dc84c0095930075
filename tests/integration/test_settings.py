# SPDX-License-Identifier: Apache-2.0
"""The real ReFrame with our settings: every system, no writable home, a new shell, invalid files."""

import functools
import json
import os
import runpy
import sys
from pathlib import Path

import pytest

from factories.processes import REFRAME, captured
from firsttouch import paths

CHECK = """\
# SPDX-License-Identifier: Apache-2.0
import reframe as rfm
import reframe.utility.sanity as sn


@rfm.simple_test
class Where(rfm.RunOnlyRegressionTest):
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "echo"

    @run_before("run")
    def name_the_partition(self):
        self.executable_opts = [self.current_partition.fullname.replace(":", "/")]

    @sanity_function
    def ran(self):
        return sn.assert_found(r"^local/default$", self.stdout)

    @performance_function("GB/s")
    def one(self):
        return 1.0

    @performance_function("ns")
    def two(self):
        return 2.0


@rfm.simple_test
class EightNodes(rfm.RunOnlyRegressionTest):
    valid_systems = ["+numa %numa_nodes=8"]
    valid_prog_environs = ["builtin"]
    executable = "true"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of all runs: checks/ has two checks, here/ is empty, and ReFrame writes to out/."""
    root = tmp_path_factory.mktemp("settings")
    for name in ("checks", "here"):
        (root / name).mkdir()
    (root / "checks" / "where.py").write_text(CHECK)
    return root


@pytest.fixture(scope="module")
def reframe(folder):
    """Returns a function that runs ReFrame on a folder with two checks, without a home, in an empty folder."""

    def run(*argv, **env):
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": "/nonexistent",
            "TMPDIR": str(folder),
            "RFM_CONFIG_FILES": str(paths.SETTINGS),
            "FIRSTTOUCH_OUT": str(folder / "out"),
            **env,
        }
        here = folder / "here"
        command = [REFRAME, "--nocolor", "-c", folder / "checks", *argv]
        done = captured(command, cwd=here, env=environment)
        assert list(here.iterdir()) == []
        return done

    return run


@pytest.fixture(scope="module")
def config(reframe):
    """Returns a function that returns the configuration of a system."""

    @functools.cache
    def shown(system):
        done = reframe("--show-config", f"--system={system}")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "WARNING" not in done.stdout
        return json.loads(done.stdout)

    return shown


@pytest.fixture(scope="module")
def a_run(reframe):
    """A run of the check Where."""
    done = reframe("-r", "-n", "Where", "--system=local")
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.parametrize(("system", "numa_nodes", "per_core"), [("amd-opteron", 8, 1), ("intel-xeon", 4, 2)])
def test_configuration_of_the_published_systems(config, folder, system, numa_nodes, per_core):
    configuration = config(system)
    (partition,) = configuration["systems"][0]["partitions"]
    assert (partition["scheduler"], partition["access"]) == ("slurm", ["--exclusive"])
    assert partition["processor"]["num_cpus"] == 64
    assert partition["processor"]["num_sockets"] == 4
    assert partition["processor"]["num_cpus_per_core"] == per_core
    assert partition["extras"]["numa_nodes"] == numa_nodes
    assert "numa" in partition["features"]
    out = str(folder / "out" / "reframe")
    assert configuration["general"][0]["report_file"].startswith(out)
    assert configuration["general"][0]["topology_prefix"].startswith(out)
    assert configuration["storage"][0]["sqlite_db_file"].startswith(out)
    assert configuration["systems"][0]["prefix"] == out
    assert "#ALL" not in json.dumps(configuration)
    assert "$HOME" not in json.dumps(configuration)


def test_local_comes_last_and_takes_any_host(reframe):
    systems = runpy.run_path(str(paths.SETTINGS))["site_configuration"]["systems"]
    names = [system["name"] for system in systems]
    assert {"amd-opteron", "intel-xeon"} <= set(names)
    assert [s["name"] for s in systems if ".*" in s["hostnames"]] == names[-1:] == ["local"]
    assert "selected system:   'local'" in reframe("-l").stdout


@pytest.mark.usefixtures("a_run")
def test_a_run_writes_below_one_folder_only(reframe, folder):
    out = folder / "out" / "reframe"
    assert {f.name for f in out.iterdir()} >= {"output", "perflogs", "reports", "results.db"}
    (log,) = out.glob("perflogs/local/default/*.log")
    header, *rows = [line.split("|") for line in log.read_text().splitlines()]
    assert all(len(row) == len(header) for row in rows)
    values = [dict(zip(header, row, strict=True)) for row in rows[:2]]
    assert [(v["perf_var"], v["perf_value"], v["perf_unit"]) for v in values] == [
        ("one", "1.0", "GB/s"),
        ("two", "2.0", "ns"),
    ]
    assert not Path("/nonexistent").exists()
    stored = reframe("--list-stored-testcases=now-1d:now/mean:/")
    assert stored.returncode == 0, stored.stdout
    assert "Where" in stored.stdout


def test_a_site_adds_its_systems_and_checks_ask_for_numa_nodes(reframe, tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    text = (paths.SYSTEMS / "intel-xeon.yaml").read_text().replace("name: intel-xeon", "name: ours", 1)
    (site / "ours.yaml").write_text(text)
    assert "EightNodes" not in reframe("-l", "--system=ours", FIRSTTOUCH_SYSTEMS=str(site)).stdout
    (site / "ours.yaml").write_text(text.replace("packages: 4", "packages: four", 1))
    done = reframe("-l", "--system=amd-opteron", FIRSTTOUCH_SYSTEMS=str(site))
    assert (done.returncode, "EightNodes" in done.stdout) == (0, True)
    done = reframe("-l", "--system=ours", FIRSTTOUCH_SYSTEMS=str(site))
    assert done.returncode == 1
    assert "requested system: 'ours'" in done.stdout + done.stderr
    (error,) = [line for line in done.stderr.splitlines() if line.startswith("firsttouch: ")]
    assert error.count(f"{site}/ours.yaml:") == 1
    assert "facts.packages: 'four' is not a whole number" in error


@pytest.mark.skipif((paths.SYSTEMS / "local.yaml").exists(), reason="this host has its local.yaml")
def test_without_the_probe_the_other_systems_work(reframe, tmp_path):
    none = {"FIRSTTOUCH_PROBE": str(tmp_path / "none")}
    done = reframe("-l", "--system=amd-opteron", **none)
    assert "EightNodes" in done.stdout
    assert "this system is left out: " in done.stderr
    assert "none, which is not a program" in done.stderr


def test_a_fresh_shell_with_the_environment_activated(tmp_path):
    if sys.prefix == sys.base_prefix:
        pytest.skip("the tests do not run in a virtual environment")
    script = f". {sys.prefix}/bin/activate && reframe -c reframe/ -l --system amd-opteron"
    done = captured(
        [
            *("env", "-i", "PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/nonexistent", f"TMPDIR={tmp_path}"),
            *("FIRSTTOUCH_EFFORT=smoke", "bash", "-c", script),
        ],
        cwd=paths.ROOT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "selected system:   'amd-opteron'" in done.stdout
    assert str(paths.SETTINGS) in done.stdout
    assert "settings.py: not a valid" not in done.stdout
