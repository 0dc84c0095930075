# SPDX-License-Identifier: Apache-2.0
"""Aligners with copies of their index in RAM give the same alignments, and the copies lie where they should."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from factories import genomes
from factories.genomes import installed, scenario
from factories.processes import wait_until
from firsttouch.errors import BadInput
from firsttouch.execution import ram_store
from firsttouch.execution.placement_check import family
from firsttouch.genomics import launch
from firsttouch.genomics.index_copies import OWN, IndexCopies
from firsttouch.genomics.sinks import AlignOutput

#: Programs that map the files, have private shared memory, and read a copy.
KINDS = {"bowtie2": "mapped", "snap": "mapped", "bwa-mem": "loaded", "minimap2": "read"}


@pytest.fixture(scope="module")
def reads(lambda_work, tmp_path_factory):
    return genomes.first(500, lambda_work[1], tmp_path_factory.mktemp("few"))


@pytest.fixture(scope="module")
def built(lambda_work, tmp_path_factory):
    """Returns a function that returns an aligner with its index, and skips without its program."""
    return lambda name: (installed(name), genomes.built(installed(name), lambda_work[2], tmp_path_factory))


@pytest.mark.parametrize("name", KINDS)
def test_the_alignments_are_those_of_a_run_without_copies(built, reads, name, tmp_path):
    program, prefix = built(name)
    work = replace(launch.prepare(program, prefix, reads, 25_000), summed=True)
    own = launch.run(work, scenario(2), AlignOutput(tmp_path / "own.sam", "sam"), timeout=60)
    work = work.with_copies()
    with work.copies:
        holders = set()
        for copied in ("node-index", "node-index", "interleaved-index"):
            shared = scenario(2).with_options([copied])
            out = tmp_path / f"{copied}.sam"
            result = launch.run(work, shared, AlignOutput(out, "sam"), timeout=60)
            assert result.alignments.sums == own.alignments.sums
            uses = work.copies.uses(shared)
            assert uses[0] is uses[1]
            holders.add(uses[0].prefix or uses[0].entering)
            for pages in (o.observed.index for o in result.outcomes):
                assert pages.copy_pages.keys() == {0}
                assert sum(pages.copy_pages.values()) > 0
                assert pages.misplaced == ""
                assert pages.must_map is (program.index_use != "read")
            header = [line for line in out.read_text().splitlines() if line.startswith("@")]
            assert not any(re.search(r"/proc/\d+|/dev/shm", line) for line in header)
        # The two runs with the same option shared one copy.
        assert len(holders) == 2
    assert not any(Path(str(prefix)).exists() for prefix in holders if isinstance(prefix, Path))
    sam = (tmp_path / "interleaved-index.sam").read_text().splitlines()
    without = (tmp_path / "own.sam").read_text().splitlines()
    assert [li for li in sam if not li.startswith("@PG")] == [li for li in without if not li.startswith("@PG")]


def test_a_changed_index_is_copied_again(built, tmp_path):
    program, prefix = built("bowtie2")
    for file in program.index_paths(prefix):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    shared = scenario(1).with_options(["node-index"])
    with IndexCopies(program, tmp_path / "index") as copies:
        first = copies.uses(shared)[0].prefix
        assert copies.uses(shared)[0].prefix == first
        os.utime(tmp_path / "index.1.bt2")
        second = copies.uses(shared)[0].prefix
        assert second != first
        assert copies.uses(scenario(3)) == [OWN] * 3
        assert not second.parent.exists()
        (tmp_path / "index.1.bt2").unlink()
        with pytest.raises(BadInput, match="index of bowtie2"):
            copies.uses(shared)


@pytest.mark.parametrize("name", ["bowtie2", "bwa-mem"])
def test_the_users_command_in_one_instance(built, reads, run_cli, tmp_path, name):
    prefix = str(built(name)[1])
    argv = {
        "bowtie2": ["bowtie2", "-p", "1", "-x", prefix, "-1", reads[0], "-2", reads[1]],
        "bwa-mem": ["bwa", "mem", "-t", "1", "-Y", prefix, *reads],
    }[name]
    texts = []
    for option in ("", "+node-index", "+interleaved-index"):
        out = tmp_path / f"out{option}.sam"
        done = run_cli("run", f"1x-default{option}", "-o", out, "--", *argv)
        assert done.status == 0, done.err
        texts.append(out.read_text().replace(f"{option}, 1 x", ", 1 x"))
    assert texts[1] == texts[0]
    assert texts[2] == texts[1]


#: Aligner, what this host is made to lack, and the message.
LACKING = [
    ("bowtie2", "room", lambda _: 4096, r".* are needed, and NUMA node 0 has 4 KiB left"),
    ("bowtie2", "_BASES", (), r"a RAM store needs one of the folders .*, and none exists"),
    ("bwa-mem", "_BASES", (), r"there is no /dev/shm: .*"),
    ("bwa-mem", "_forbidden", lambda _: "node 0 is outside of the cpuset", r"node 0 is outside of the cpuset"),
]


@pytest.mark.parametrize("lacking", LACKING, ids=lambda row: row[3])
def test_what_this_host_lacks_is_one_line(built, reads, run_cli, monkeypatch, lacking):
    name, attribute, value, reason = lacking
    monkeypatch.setattr(ram_store, attribute, value)
    argv = ["run", "1x-default+node-index", "--aligner", name, "--index", built(name)[1], "--reads", reads[0]]
    before = set(reads[0].parent.iterdir())
    done = run_cli(*argv, "-o", reads[0].with_name("out.sam"), "--share-host")
    assert done.status == 3
    assert re.fullmatch(rf"firsttouch: cannot be done here: {reason}", done.err.strip().splitlines()[-1])
    assert set(reads[0].parent.iterdir()) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_a_stopped_run(built, reads, stand_in, tmp_path, number):
    _, prefix = built("bowtie2")
    stand_in("bowtie2-align-s", f'touch "{tmp_path}/started"; exec sleep 1000')
    argv = ["run", "1x-default+node-index", "--aligner", "bowtie2", "--index", prefix, "--reads", reads[0]]
    argv = [Path(sys.executable).with_name("firsttouch"), *argv, "-o", tmp_path / "out.sam", "--share-host"]
    with subprocess.Popen(list(map(str, argv)), stderr=subprocess.DEVNULL) as launcher:
        wait_until((tmp_path / "started").exists, "the start of the aligner")
        members = family(launcher.pid)[1:]
        held = [pid for pid in members if list(Path("/proc", str(pid), "root/dev/shm").glob("firsttouch-*/*.bt2"))]
        assert held
        launcher.send_signal(number)
        launcher.wait(120)
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in members), "the end of all processes")
    assert not (tmp_path / "out.sam").exists()


def test_an_instance_never_gets_the_copy_of_other_banks(tmp_path, monkeypatch):
    file = tmp_path / "index"
    file.write_text("x")
    program = SimpleNamespace(index_use="read", index_bytes=lambda _: 1, index_paths=lambda _: [file])
    copies = IndexCopies(program, file)
    monkeypatch.setattr(copies, "_copy", lambda *_: copies._copies.update({(0,): "on 0"}))
    placements = [SimpleNamespace(numa_nodes=(0,)), SimpleNamespace(numa_nodes=(1,))]
    with pytest.raises(KeyError):
        copies.uses(SimpleNamespace(options=("node-index",), placements=placements, instances=2))
    everywhere = SimpleNamespace(options=("interleaved-index",), placements=placements, instances=2)
    assert copies.uses(everywhere) == ["on 0", "on 0"]
