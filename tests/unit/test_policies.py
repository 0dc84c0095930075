# SPDX-License-Identifier: Apache-2.0
"""The memory policies: the thesis's, and incomplete policy files."""

import re
import shutil
import subprocess

import pytest
from msgspec import structs

from firsttouch import paths
from firsttouch.errors import BadInput
from firsttouch.host import pages
from firsttouch.scenarios import policies

WHOLE = """\
[one]
title = "t"
whole = []
part = ["{bind}"]
mode = { whole = "default", part = "bind" }
pages = { whole = "anywhere", part = "inside" }
tolerance = 0.1
"""


@pytest.mark.parametrize(
    ("name", "whole", "part"),
    [
        ("original", (), ("--cpunodebind=1", "--membind=1,3")),
        ("localalloc", ("--localalloc",), ("--cpunodebind=1", "--localalloc")),
        ("interleave", ("--interleave=1,3",), ("--cpunodebind=1", "--interleave=1,3")),
    ],
)
def test_policies_of_the_thesis(name, whole, part):
    policy = policies.policy(name)
    assert policy.numactl("whole", bind="--cpunodebind=1", numa_nodes="1,3") == whole
    assert policy.numactl("part", bind="--cpunodebind=1", numa_nodes="1,3") == part


def test_their_order_and_an_unknown_one():
    assert list(policies.policies())[:3] == ["original", "localalloc", "interleave"]
    with pytest.raises(BadInput, match=r"'best': .*original, localalloc"):
        policies.policy("best")


def test_a_choice_of_them():
    assert [p.name for p in policies.select_policies("thesis")] == ["original", "localalloc", "interleave"]
    listed = [name for name, p in policies.policies().items() if not p.unlisted]
    assert [p.name for p in policies.select_policies("all")] == listed
    assert set(policies.policies()) - set(listed) == {"unbound"}
    assert [p.name for p in policies.select_policies("balancing,original,balancing")] == ["balancing", "original"]
    for text in ("", "original,", "thesis,original", "best"):
        with pytest.raises(BadInput, match=r": .*original, "):
            policies.select_policies(text)


@pytest.mark.parametrize("name", list(policies.policies()))
def test_all_of_them_have_what_numactl_takes(name):
    policy = policies.policy(name)
    for extent in ("whole", "part"):
        options = policy.numactl(extent, bind="--cpunodebind=1", numa_nodes="1,3")
        assert all(re.fullmatch(r"--[a-z-]+(=[0-9,]+)?", option) for option in options)
    assert policies.policy(name).binds == (policies.policy(name).part[:1] == ("{bind}",)) == (name != "unbound")


MAPS = "7f00 {mode} anon=1 dirty=1 N0=1 kernelpagesize_kB=4"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (f"echo '{MAPS.format(mode='prefer (many):0')}'", ""),
        (f"echo '{MAPS.format(mode='prefer:0')}'", "this host gives prefer:0 instead"),
        (f"echo '{MAPS.format(mode='default')}'", "this host gives default instead"),
        ("echo 'unknown option' >&2; echo usage >&2; exit 1", "this host refuses it: unknown option"),
    ],
)
def test_what_came_later_is_tried(stand_in, script, reason):
    stand_in("numactl", f'[ "$*" = "--preferred-many=0-1 -- cat /proc/self/numa_maps" ] || exit 99\n{script}')
    table = policies.parse(WHOLE.replace("[one]", "[many]"), "p.toml")["many"]
    many = structs.replace(
        table,
        part=("{bind}", "--preferred-many={numa_nodes}"),
        mode={"whole": "default", "part": "prefer (many)"},
        since="Linux 5.15",
    )
    assert policies.refusal(many, "0-1") == (f"policy many needs Linux 5.15: {reason}" if reason else "")


def test_a_policy_may_need_a_kernel_setting(tmp_path, monkeypatch):
    file = tmp_path / "numa_balancing"
    policy = policies.parse(WHOLE, "p.toml")["one"]

    def refusal():
        return policies.refusal(structs.replace(policy, since="Linux 5.12", setting=(str(file), "1")), "0")

    assert refusal() == f"policy one needs Linux 5.12: {file}: No such file or directory"
    file.write_text("0\n")
    assert refusal() == f"policy one needs Linux 5.12: {file} is 0: an administrator must set it to 1"
    file.write_text("1\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refusal() == "policy one needs Linux 5.12: numactl is not on PATH"


def test_the_thesis_policies_are_not_tried(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert [policies.refusal(p, "0") for p in policies.select_policies("thesis")] == ["", "", ""]


@pytest.mark.skipif(shutil.which("numactl") is None, reason="numactl is not on PATH")
def test_real_numactl_and_kernel():
    """The trial of a policy agrees with the policy that the kernel shows, whatever this host supports."""
    nodes = subprocess.run(["numactl", "--show"], capture_output=True, text=True, check=True).stdout
    bank = re.search(r"^membind: (\d+)", nodes, re.MULTILINE)[1]
    for policy in policies.select_policies("all"):
        argv = [
            "numactl",
            *policy.numactl("part", bind="--all", numa_nodes=bank),
            "--",
            "cat",
            "/proc/self/numa_maps",
        ]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        shown = {pages.mode(line) for line in done.stdout.splitlines() if " anon=" in line}
        holds = done.returncode == 0 and all(policy.holds(mode, "part") for mode in shown) and shown
        if not policy.setting:
            assert (policies.refusal(policy, bank) == "") == bool(holds), policy.name


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('title = "t"\n', ""),
        ("tolerance = 0.1", "tolerance = 0.1\nother = 1"),
        ("[one]", "[One]"),
        ('"inside"', '"somewhere"'),
        ('mode = { whole = "default", part', 'mode = { part2 = "default", part'),
        ('"{bind}"', '"{binding}"'),
    ],
)
def test_what_is_not_whole_is_refused_with_its_file(old, new):
    assert old in WHOLE
    with pytest.raises(BadInput, match=r"^p\.toml:\d+: "):
        policies.parse(WHOLE.replace(old, new, 1), "p.toml")


def test_the_probe_judges_interleaved_pages_as_all_others_are():
    source = (paths.ROOT / "probe/src/memory.c").read_text(encoding="utf-8")
    (number,) = re.findall(r"slack = asked \? ([0-9.]+) \* even", source)
    assert float(number) == policies.policy("interleave").tolerance
