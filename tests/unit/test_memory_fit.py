# SPDX-License-Identifier: Apache-2.0
"""Scenarios that fit if instances share copies of the index: the article's Opteron, and SNAP's 29 GB."""

import json
import re
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from factories import topologies
from firsttouch.cli import run_command
from firsttouch.errors import CannotHere
from firsttouch.genomics.aligners import aligner, aligners
from firsttouch.scenarios.memory_fit import Need, copy_banks
from firsttouch.scenarios.placement import plan
from firsttouch.units import format_bytes

SNAP = aligner("snap").need(29_000_000_000)


@pytest.fixture(scope="module")
def on_opteron(opteron):
    """Returns the plan for SNAP on the article's Opteron: eight banks of 16 GiB."""
    return plan(opteron, SNAP)


def test_eight_instances_of_snap_instead_of_two(on_opteron):
    assert max(s.instances for s in on_opteron.scenarios) == 2
    assert on_opteron.with_fitting_index("8x8-bound").name == "8x8-bound+interleaved-index"
    assert on_opteron.with_fitting_index("4x16-local").name == "4x16-local+node-index"
    assert on_opteron.scenario("8x8-bound+shared").instances == 8
    # An option that is not about the index stays.
    refused = on_opteron.with_fitting_index("8x8-bound").with_options(("no-thp",))
    assert on_opteron.with_fitting_index(refused).name == "8x8-bound+no-thp+interleaved-index"


def test_instances_need_room_beside_the_copy(opteron):
    need = Need(10 * 2**30, 4 * 2**30, 2**30, 12 * 2**30, "mapped")
    planned = plan(opteron, need)
    reason = dict(planned.infeasible)["8x8-bound"]
    assert "index 10 GiB + 12 GiB of buffers" in reason
    with pytest.raises(CannotHere, match=r" 12 GiB .* 3.2 GiB "):
        planned.scenario("8x8-bound+node-index")
    # One copy over all banks leaves more: 15.2 GiB less 1.5 GiB each.
    assert planned.scenario("8x8-bound+interleaved-index")
    limited = plan(replace(opteron, memory_limit_bytes=100 * 2**30), need)
    with pytest.raises(CannotHere, match=r"8 x 12 GiB .* 12 GiB = 108 GiB"):
        limited.scenario("8x8-bound+interleaved-index")


@pytest.mark.parametrize("program", aligners().values(), ids=lambda p: p.name)
def test_copies_save_memory_only_if_the_program_maps(opteron, program):
    need = program.need(5_000_000_000)
    saved = need.bytes_for(1) - need.bytes_for(1, "node")
    assert saved == (need.index_bytes if program.index.mapped.words or program.index.loaded else 0)
    planned = plan(opteron, need)
    if program.index.mapped.words:
        assert planned.scenario("8x8-bound+shared")
    else:
        with pytest.raises(CannotHere, match=r"memory option shared: "):
            planned.scenario("8x8-bound+shared")
    if not saved:
        assert not any(planned.with_fitting_index(name) for name, _ in planned.infeasible)


def test_a_program_without_an_index_takes_no_index_option(opteron):
    for option in ("shared", "node-index", "interleaved-index"):
        with pytest.raises(CannotHere, match=rf"memory option {option}: .*index"):
            plan(opteron).scenario(f"1x64-default+{option}")
    assert plan(opteron).scenario("1x64-default+private")


def test_the_banks_of_copies():
    banks = [(1, 0), (0, 1), (2,), (2,)]
    assert copy_banks(banks, "node") == [(0, 1), (2,)]
    assert copy_banks(banks, "all") == [(0, 1, 2)]
    assert copy_banks(banks, "none") == copy_banks(banks, "own") == []


def test_the_plan_names_what_fits_and_its_commands(run_cli):
    argv = ["plan", "--aligner", "snap", "--index-size", "29GB", "--xml", topologies.OPTERON]
    text = " ".join(run_cli(*argv).out.split())
    assert "can be run with +interleaved-index, which shares copies of the index: 4x16-bound," in text
    assert "8x8-interleave (8 x 572 MiB + 1 x 27 GiB of 120 GiB)" in text
    document = json.loads(run_cli(*argv, "--json").out)
    fits = {row["name"]: row["fits_as"] for row in document["infeasible"]}
    assert fits["8x8-bound"] == "8x8-bound+interleaved-index"
    lines = run_cli(*argv, "8x8-bound+thp+interleaved-index").out.splitlines()
    assert lines[1:4] == [
        "# a copy of the index in RAM, evenly on NUMA nodes 0-7",
        "# `firsttouch run` makes the copies and gives them to snap-aligner",
        "# snap-aligner maps its index with -map in place of -map-",
    ]
    assert re.match(r"env (\S+ )?GLIBC_TUNABLES=glibc.malloc.hugetlb=1\S* numactl", lines[4])
    assert lines[4].endswith("numactl --cpunodebind=0 --membind=0 -- PROGRAM")
    assert len(lines) == 12
    small = [*argv[:2], "bwa-mem", "--index-size", "5.1GB", "--xml", topologies.OPTERON]
    lines = run_cli(*small, "8x8-bound+node-index").out.splitlines()
    assert lines[1:3] == [f"# a copy of the index in RAM, on NUMA node {n}" for n in range(2)]
    assert lines[10] == "# bwa maps its index after `bwa shm INDEX`"
    assert f"8 x {format_bytes(5_100_000_000)}" in lines[0]


@pytest.mark.parametrize(
    ("available", "options", "left"),
    [
        (None, (), None),
        (1000, (), 1000 - 2 * (100 + 20 + 4 * 5)),
        (1000, ("node-index",), 1000 - 2 * 40),
        (100, (), 0),
    ],
)
def test_sorting_gets_what_the_instances_leave(available, options, left):
    need = Need(index_bytes=100, instance_bytes=20, thread_bytes=5, file_bytes=90, index_use="mapped")
    aligner = SimpleNamespace(index_bytes=lambda _: 90, need=lambda _: need)
    command = SimpleNamespace(index="i", aligner=aligner)
    scenario = SimpleNamespace(instances=2, threads=4, options=options)
    assert run_command._memory_left(run_command._needed_bytes(command, scenario), available) == left
