# SPDX-License-Identifier: Apache-2.0
"""The folders: what a user's and a site's files replace, and where an installed copy writes."""

import shutil
import subprocess
import sys

import pytest

from firsttouch import documents, paths
from firsttouch.errors import BadInput
from firsttouch.genomics import aligners
from firsttouch.genomics.recognition import recognize
from firsttouch.judge import causes
from firsttouch.records import catalogue
from firsttouch.scenarios import memory_options, policies

OWN = """\
[%s]
title = "%s"
whole = []
part = ["--cpunodebind={numa_nodes}"]
mode = {whole = "default", part = "default"}
pages = {whole = "anywhere", part = "anywhere"}
tolerance = 0.1
"""


@pytest.fixture
def own(tmp_path, own_folders):
    """The folders of a user and of a site, with nothing in them."""
    folders = tmp_path / "config" / "firsttouch", tmp_path / "site"
    for folder in folders:
        for kind in ("systems", "aligners", "datasets"):
            (folder / kind).mkdir(parents=True)
    cached = (aligners.aligner, policies.policies, memory_options.options, causes.rules, catalogue.catalogue)
    for function in cached:
        function.cache_clear()
    yield folders
    for function in cached:
        function.cache_clear()


@pytest.mark.parametrize(("kind", "name"), [("systems", "intel-xeon.yaml"), ("datasets", "lambda.toml")])
def test_the_user_comes_before_the_site_and_the_site_before_the_built_in_file(own, kind, name):
    stem, suffix = name.split(".")
    assert paths.data_files(kind, f".{suffix}")[stem].is_relative_to(paths.ROOT)
    for folder in reversed(own):
        (folder / kind / name).touch()
        (folder / kind / f"ours.{suffix}").touch()
        files = paths.data_files(kind, f".{suffix}")
        assert files[stem] == folder / kind / name
        assert files["ours"] == folder / kind / f"ours.{suffix}"
    assert list(files) == sorted(files)


def test_a_wrong_aligner_of_the_site_is_reported_where_it_is_used_and_breaks_no_other(own):
    _, site = own
    good = next(f for f in paths.folders("aligners")[-1].glob("bwa-mem.toml"))
    shutil.copy(good, site / "aligners" / "ours.toml")
    (site / "aligners" / "wrong.toml").write_text("program = 'x'\n")
    assert {"ours", "wrong", "bwa-mem"} <= set(aligners.names())
    assert aligners.aligner("ours").program == "bwa"
    assert aligners.aligner("bwa-mem").program == "bwa"
    with pytest.raises(BadInput, match=r"site/aligners/wrong.toml:1: .*'version'"):
        aligners.aligner("wrong")
    assert recognize(["true"]) is None
    assert recognize(["/opt/bwa", "mem", "ref"])[0].program == "bwa"
    with pytest.raises(BadInput, match=r"wrong\.toml"):
        recognize(["x", "reads.fq"])


def test_policies_and_causes_of_site_and_user_are_added_and_replace(own, capsys):
    user, site = own
    (site / "policies.toml").write_text(OWN % ("ours", "site") + OWN % ("interleave", "site"))
    (user / "policies.toml").write_text(OWN % ("ours", "user"))
    (site / "causes.toml").write_text('[[cause]]\nname = "ours"\ntext = "t"\nmetrics = ["health.*"]\n')
    assert policies.policy("ours").title == "user"
    assert policies.policy("interleave").title == "site"
    assert policies.policy("original").title not in {"site", "user"}
    assert [rule.name for rule in causes.rules()][-1] == "ours"
    assert capsys.readouterr().err == ""


def test_metrics_of_site_and_user_are_added_and_change_none(own):
    user, site = own
    (site / "metrics.toml").write_text(
        '[hpcg]\nmetrics = {rate = "GB/s"}\nparameters = ["threads"]\n'
        '[latency]\nmetrics = {page_latency = "ns", random_latency = "s"}\nparameters = ["bank", "level"]\n'
    )
    (user / "metrics.toml").write_text('[hpcg]\nmetrics = {time = "s"}\nparameters = []\n')
    assert {name: (m.unit, m.better) for name, m in catalogue.checks()["hpcg"].metrics.items()} == {
        "rate": ("GB/s", "higher"),
        "time": ("s", "lower"),
    }
    assert catalogue.checks()["hpcg"].parameters == ("threads",)
    latency = catalogue.checks()["latency"]
    assert {name: metric.unit for name, metric in latency.metrics.items()} == {
        "random_latency": "ns",
        "sequential_latency": "ns",
        "page_latency": "ns",
    }
    assert (latency.parameters[0], latency.parameters[-1]) == ("program", "level")
    assert latency.parameters.count("bank") == 1


@pytest.mark.parametrize("name", ["policies.toml", "memory_options.toml", "causes.toml", "metrics.toml"])
def test_a_wrong_table_of_the_site_is_reported_and_ignored(own, capsys, name):
    _, site = own
    (site / name).write_text("[x]\nwrong = 1\n")
    before = len(policies.policies()), len(memory_options.options()), len(causes.rules()), len(catalogue.checks())
    assert min(before) > 3
    assert f"firsttouch: this file is ignored: {site / name}:" in capsys.readouterr().err


def test_a_wrong_built_in_table_is_an_error(monkeypatch, tmp_path):
    (tmp_path / "policies.toml").write_text("[x]\nwrong = 1\n")
    monkeypatch.setitem(paths._BUILT_IN, "policies.toml", tmp_path / "policies.toml")
    with pytest.raises(BadInput, match=r"policies.toml:\d: "):
        documents.tables("policies.toml", policies.parse)


def test_one_folder_for_everything(monkeypatch, tmp_path):
    for name in ("FIRSTTOUCH_DATA", "FIRSTTOUCH_OUT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FIRSTTOUCH_HOME", str(tmp_path))
    assert (paths.config(), paths.data(), paths.cache()) == (tmp_path, tmp_path / "data", tmp_path / "cache")
    assert paths.drafts() == tmp_path / "systems"
    monkeypatch.setenv("FIRSTTOUCH_DATA", str(tmp_path / "d"))
    assert paths.data() == tmp_path / "d"


def test_a_relative_folder_of_the_xdg_variables_is_ignored(monkeypatch):
    monkeypatch.delenv("FIRSTTOUCH_HOME", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/u")
    assert str(paths.config()) == "/home/u/.config/firsttouch"


@pytest.mark.parametrize("program", ["reframe", "other"])
@pytest.mark.parametrize("given", ["", "/ours.py"])
def test_only_reframe_gets_our_configuration(tmp_path, program, given):
    shutil.copy(paths.ROOT / "setup" / "firsttouch_reframe.pth", tmp_path)
    code = "import os, site, sys; site.addsitedir(sys.argv[1]); print(os.environ.get('RFM_CONFIG_FILES', ''))"
    (tmp_path / program).write_text(code)
    argv = [sys.executable, str(tmp_path / program), str(tmp_path)]
    env = {"PYTHONPATH": str(paths.PACKAGE.parent), **({"RFM_CONFIG_FILES": given} if given else {})}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.strip() == (given or (str(paths.SETTINGS) if program == "reframe" else ""))


def test_a_colon_in_the_path_of_the_configuration_is_reported(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(paths, "SETTINGS", tmp_path / "a:b" / "settings.py")
    monkeypatch.delenv("RFM_CONFIG_FILES", raising=False)
    paths.configure_reframe()
    assert "for ReFrame a colon ends a path" in capsys.readouterr().err
