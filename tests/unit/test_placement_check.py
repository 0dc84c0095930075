# SPDX-License-Identifier: Apache-2.0
"""The observed placement: read from a stored and the real /proc, and verified."""

import os
import shutil
import subprocess
import sys

import pytest

from firsttouch.execution import placement_check
from firsttouch.execution.child_process import child
from firsttouch.execution.placement_check import IF_PARENT_LIVES, IndexPages, Observed, family, look, verify
from firsttouch.host.pages import Memory
from firsttouch.scenarios.placement import Placement


def asked(policy="original", extent="part", pus=(0, 1), nodes=(0, 1)):
    return Placement(tuple(pus), tuple(nodes), (), policy, extent)


def observed(pages, *, pus=(0, 1), held=None, modes=None, looks=3, **other):
    pus = frozenset(pus)
    modes = modes or {"bind:0-1": sum(pages.values())}
    held = pus if held is None else frozenset(held)
    return Observed(looks=looks, threads=2, pus=pus, held=held, pages=pages, modes=modes, **other)


GOOD = {0: 5000, 1: 5000}


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_a_placement_that_holds(threads):
    assert verify(asked(), threads, observed(GOOD)) == ""


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        (observed({}, modes={"default": 1}), "cannot be verified: the instance ended before"),
        (observed(GOOD, looks=0), "cannot be verified: the instance ended before"),
        (observed(GOOD, unreadable="/proc/7/numa_maps: Permission denied"), "/proc/7/numa_maps: Perm"),
        (observed(GOOD, pus=(0, 1, 2, 3)), "threads may run on PUs 2-3, requested were 0-1"),
        (observed(GOOD, held=(1,)), "2 threads are held on PUs 1 of 0-1: something else pins them"),
        (observed(GOOD, modes={"bind:0": 9000, "default": 1000}), "memory policy is bind:0, default, requested"),
        (observed(GOOD, thread_modes={"bind:0-1", "local"}), "a thread's memory policy is local, requested was"),
        (observed({0: 5000, 1: 4800, 2: 200}), r"pages per NUMA node 0: 5000, 1: 4800, 2: 200: more than 1%"),
    ],
)
def test_a_placement_that_did_not_hold(what, reason):
    assert reason in verify(asked(), 2, what)


MIB = 1 << 20


@pytest.mark.parametrize(
    ("peak_mib", "file_mib", "seen_mib", "share", "reason"),
    [
        (320, 20, 300, 1.0, ""),
        (320, 20, 150, 0.5, ""),
        (320, 20, 149, 0.4967, "149 MiB of memory were sampled, and the program had at least 300 MiB at its peak"),
        (9000, 8990, 5, 0.5, ""),  # an aligner that maps its index
        (9000, 9500, 5, 0.9994, ""),  # a part of the mapped files is resident
        (4, 3, 0.25, 0.25, ""),  # so little that it does not matter
    ],
)
def test_most_of_a_programs_memory_must_have_been_sampled(peak_mib, file_mib, seen_mib, share, reason):
    what = observed({0: int(seen_mib * 256)}, modes={"bind:0-1": int(seen_mib * 256)})
    what.largest_peak, what.file_bytes = peak_mib * MIB, file_mib * MIB
    what.file_resident = min(file_mib, 8990) * MIB
    assert what.to_dict()["seen_share"] == share
    problem = verify(asked(), 2, what)
    assert (problem == placement_check.why_unverified(what), bool(problem)) == (True, bool(reason))
    assert reason in problem
    what.pus |= {9}
    assert "threads may run on PUs 9" in verify(asked(), 2, what)


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ({"file_bytes": 9000, "file_resident": 4}, "the program had at least 300 MiB"),
        ({"file_bytes": 9000, "file_resident": 160}, ""),
        ({"file_bytes": 1, "file_resident": 299}, ""),
        ({"most_anonymous": 1200}, "1 MiB of memory were sampled, and the program had at least 1.17 GiB"),
        ({"most_anonymous": 2, "file_bytes": 299, "file_resident": 299}, ""),
    ],
    ids=[
        *("file that is mapped and not read", "file that is read", "file mapped after the look"),
        *("processes together", "little memory"),
    ],
)
def test_neither_mapped_files_nor_several_processes_hide_memory(sizes, reason):
    what = observed({0: 256}, modes={"bind:0-1": 256}, largest_peak=300 * MIB)
    for name, mebibytes in sizes.items():
        setattr(what, name, mebibytes * MIB)
    message = placement_check.why_unverified(what)
    assert (reason in message, bool(message)) == (True, bool(reason))


def test_one_thread_may_be_held_on_one_pu():
    assert verify(asked(), 1, observed(GOOD, pus=(1,))) == ""
    assert verify(asked(pus=(1,)), 8, observed(GOOD, pus=(1,))) == ""


def test_a_few_pages_may_lie_elsewhere():
    assert verify(asked(), 2, observed({0: 9900, 7: 100})) == ""
    assert verify(asked(), 2, observed({0: 9899, 7: 101})) != ""
    local = observed({0: 9500, 7: 500}, modes={"local": 10000})
    assert verify(asked("localalloc"), 2, local) == ""


def test_pages_of_one_instance_may_lie_anywhere():
    everywhere = observed({0: 1, 9: 10000}, modes={"default": 10001})
    assert verify(asked("original", "whole"), 2, everywhere) == ""
    everywhere.modes = {"local": 10001}
    assert verify(asked("localalloc", "whole"), 2, everywhere) == ""
    assert "requested was default" in verify(asked("original", "whole"), 2, everywhere)


@pytest.mark.parametrize("extent", ["whole", "part"])
@pytest.mark.parametrize(
    ("pages", "holds"),
    [
        ({0: 100_000, 1: 95_200}, True),
        ({0: 100_000, 1: 92_000}, False),
        ({0: 100_000, 1: 100_000, 2: 5_000}, False),
        ({0: 2_000, 1: 1_000}, True),  # a huge page more or less
        ({0: 900, 1: 0}, True),  # too few pages to verify
        ({0: 2_100}, False),
    ],
)
def test_interleaved_pages_are_even(pages, holds, extent):
    observation = observed(pages, modes={"interleave:0-1": sum(pages.values())})
    reason = verify(asked("interleave", extent), 2, observation)
    assert (reason == "") == holds
    if not holds:
        assert "uneven by more than 2%" in reason or "outside" in reason


@pytest.mark.parametrize(
    ("policy", "mode", "holds"),
    [
        ("original", "bind:0-1", True),
        ("original", "bind=relative|balancing:0-1", False),  # pages may move
        ("balancing", "bind=static|balancing:0-1", True),
        ("balancing", "bind:0-1", False),
        ("preferred-many", "prefer (many):0-1", True),
        ("preferred-many", "prefer:0", False),  # what an old kernel makes of it
        ("weighted-interleave", "interleave:0-1", False),
        ("interleave", "weighted interleave:0-1", False),
    ],
)
def test_modes_with_flags(policy, mode, holds):
    reason = verify(asked(policy), 2, observed(GOOD, modes={mode: 10000}))
    assert reason == "" if holds else f"memory policy is {mode}, requested was " in reason


def test_weights_are_no_even_share():
    uneven = {0: 7500, 1: 2500}
    assert (
        verify(asked("weighted-interleave"), 2, observed(uneven, modes={"weighted interleave:0-1": 10000})) == ""
    )
    assert "outside 0-1" in verify(
        asked("weighted-interleave", "whole"),
        2,
        observed({0: 9000, 2: 1000}, modes={"weighted interleave:0-1": 10000}),
    )


STATUS = (
    "Name:\t{name}\nState:\t{state}\nVmHWM:\t    {peak} kB\nCpus_allowed_list:\t{pus}\nMems_allowed_list:\t0\n"
)
PAGE = "7f00 {mode} anon={n} dirty={n} active=0 N{node}={n} kernelpagesize_kB={kb}\n"


@pytest.fixture
def proc(tmp_path):
    """Return a function that lays out one process of a stored /proc."""
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "numa_maps").write_text("")

    def make(pid, comm, threads, maps, *, children=(), peak=100):
        folder = tmp_path / str(pid)
        for number, (pus, state) in enumerate(threads):
            task = folder / "task" / str(pid + number)
            task.mkdir(parents=True)
            (task / "status").write_text(STATUS.format(name=comm, state=state, peak=peak, pus=pus))
            (task / "children").write_text("".join(f"{c} " for c in children) if number == 0 else "")
        (folder / "comm").write_text(comm + "\n")
        (folder / "cmdline").write_text(comm + "\0")
        (folder / "status").write_text(STATUS.format(name=comm, state="R", peak=peak, pus="0"))
        (folder / "numa_maps").write_text(maps)
        return tmp_path

    return make


def test_a_program_in_a_script(proc):
    """A script may run anywhere: the process that counts is the one that holds the data."""
    small = PAGE.format(mode="default", n=30, node=0, kb=4)
    large = PAGE.format(mode="default", n=5000, node=1, kb=4)
    proc(100, "sh", [("0-3", "S (sleeping)")], small, children=[200], peak=1000)
    root = proc(200, "bwa", [("2", "R (running)")] * 4, large, peak=5000)
    what = Observed()
    look(100, what, root)
    assert (what.looks, what.threads, what.pus, what.held) == (1, 5, {0, 1, 2, 3}, {2})
    assert what.pages == {0: 30, 1: 5000}
    assert what.modes == {"default": 5030}
    assert what.peak_bytes == 6000 * 1024
    assert "held on PUs 2 of 0-3" in verify(asked("original", "whole", range(4)), 4, what)


def test_the_fullest_look_counts_and_the_widest_affinity(proc, tmp_path):
    root = proc(100, "a", [("0", "R")], PAGE.format(mode="bind:0", n=500, node=0, kb=4))
    what = Observed()
    look(100, what, root)
    (root / "100" / "numa_maps").write_text(PAGE.format(mode="default", n=400, node=1, kb=4))
    (root / "100/task/100/status").write_text(STATUS.format(name="a", state="R", peak=1, pus="7"))
    look(100, what, root)
    assert (what.looks, what.pus, what.held) == (2, {0, 7}, {0})
    assert what.pages == {0: 500}
    assert what.to_dict() == {
        "looks": 2,
        "threads": 1,
        "pus": [0, 7],
        "held": [0],
        "pages": {"0": 500},
        "policy": "bind:0",
        "memory": Memory().to_dict(),
        "seen_share": 1.0,
        "unreadable": "",
    }


def test_threads_that_end_one_after_the_other_are_held_where_they_were_together(proc):
    """On a busy host a thread of likwid-bench ends long before the next one, and looks are far apart."""
    what = Observed()
    for threads, pages in ((["0", "0", "1"], 17_000), (["0", "0"], 65_536), (["0"], 65_536)):
        arrays = PAGE.format(mode="default", n=pages, node=0, kb=4)
        root = proc(100, "likwid-bench", [(pus, "R") for pus in threads], arrays)
        look(100, what, root)
        shutil.rmtree(root / "100")
    assert (what.held, what.together) == ({0, 1}, 3)
    assert verify(asked("original", "whole"), 2, what) == ""


def test_a_program_that_is_pinned_while_its_threads_run_is_held_where_it_is_last(proc):
    pages = PAGE.format(mode="default", n=65536, node=0, kb=4)
    what = Observed()
    for threads in (["0-1"] * 4, ["0-1"] * 5, ["1"] * 4, ["1"]):
        root = proc(100, "bwa", [(pus, "R") for pus in threads], pages)
        look(100, what, root)
        shutil.rmtree(root / "100")
    assert what.held == {1}
    assert "held on PUs 1 of 0-1" in verify(asked("original", "whole"), 2, what)


def test_pages_of_files_do_not_count_and_huge_ones_count_as_what_they_are(proc):
    maps = (
        "5500 default file=/usr/bin/bwa mapped=3 N7=3 kernelpagesize_kB=4\n"
        "5501 default file=/usr/bin/bwa anon=3 dirty=3 N7=3 kernelpagesize_kB=4\n"
        "5502 default\n"
        "5503 default heap anon=10 dirty=10 N0=4 N1=6 kernelpagesize_kB=4\n"
        "5504 prefer (many):0-1 stack anon=1 dirty=1 N0=1 kernelpagesize_kB=4\n"
        "5505 bind:0 anon=2 dirty=2 N1=2 kernelpagesize_kB=2048\n"
    )
    what = Observed()
    look(100, what, proc(100, "a", [("0", "R")], maps))
    assert what.pages == {0: 5, 1: 6 + 1024}
    assert what.coverage.seen == (5 + 6 + 1024 + 3) * 4096
    assert what.modes == {"default": 10, "prefer (many):0-1": 1, "bind:0": 1024}


#: Memory that a program shares with its children, as Python's mmap.mmap(-1, size), and a file in memory.
SHARED, IN_MEMORY = "/dev/zero\\040(deleted)", "/mnt/ram/index"


@pytest.mark.parametrize(
    ("file", "sampled_late", "reason"),
    [
        (SHARED, False, "had at least 402 MiB at its peak"),
        (SHARED, True, ""),
        ("/memfd:block\\040(deleted)", True, ""),
        (IN_MEMORY, True, ""),
        (IN_MEMORY, False, "had at least 402 MiB at its peak"),
    ],
)
def test_shared_memory_is_sampled_and_never_taken_for_pages_of_files(proc, file, sampled_late, reason):
    """A program may fill its memory in its last moment, after the last look, and be measured while it does."""
    status = "VmHWM:\t {} kB\nRssAnon:\t 1540 kB\nRssFile:\t 1024 kB\nRssShmem:\t {} kB\n"
    small = PAGE.format(mode="interleave:0-1", n=385, node=0, kb=4)
    root, what = proc(100, "sleeper", [("0-1", "R")], small), Observed()
    (root / "100" / "status").write_text(status.format(2564, 0))
    look(100, what, root)
    full = 400 * MIB >> 10
    (root / "100" / "status").write_text(status.format(full + 2564, full))
    assert placement_check.has_grown(100, what, root)
    if sampled_late:
        shared = f"7f10 interleave:0-1 file={file} dirty=102400 N0=51200 N1=51200 kernelpagesize_kB=4\n"
        (root / "100" / "numa_maps").write_text(small + shared)
        look(100, what, root)
        assert not placement_check.has_grown(100, what, root)
        assert sum(what.pages.values()) == 385 + (0 if file == IN_MEMORY else 102_400)
    # wait4(2) reports this at the end.
    what.largest_peak = 403 * MIB
    message = placement_check.why_unverified(what)
    assert (reason in message, bool(message)) == (True, bool(reason))


def test_a_program_that_has_grown_is_looked_at_again(proc):
    """Its size covers all processes and includes pages of files that no sample would show."""
    status = "VmHWM:\t {} kB\nRssAnon:\t {} kB\nRssFile:\t 900000 kB\n"
    root = proc(100, "sh", [("0", "R")], PAGE.format(mode="default", n=2560, node=0, kb=4), children=[200])
    proc(200, "sort", [("0", "R")], "")
    (root / "200" / "maps").write_text(
        "5577000-5578000 r-xp 00000000 fd:00 11 /usr/bin/sort\n"
        "7f0000000000-7f0000400000 r--s 00000000 00:2b 77 /data/file\n"
        "7f1000000000-7f2000000000 rw-p 00000000 00:00 0 \n"
    )
    what, seen = Observed(), []
    for held in (10_000, 13_000, 14_000, 40_000):
        (root / "100" / "status").write_text(status.format(5_000, 0))
        (root / "200" / "status").write_text(status.format(held + 100, held))
        seen.append(placement_check.has_grown(100, what, root))
        if not what.looks:
            look(100, what, root)
    assert seen == [True, False, True, True]
    assert (what.resident, what.largest_peak, what.file_bytes) == (10_240_000, 40_100 << 10, (4 << 20) + 4096)


@pytest.mark.parametrize("comm", ["numactl", "setpriv"])
def test_what_sets_the_placement_up_is_not_yet_the_program(proc, comm):
    what = Observed()
    look(100, what, proc(100, comm, [("0", "R")], PAGE.format(mode="default", n=5, node=0, kb=4)))
    assert what == Observed()


def test_the_shell_that_looks_after_its_parent_is_not_yet_the_program(proc):
    pages = PAGE.format(mode="default", n=5, node=0, kb=4)
    root = proc(100, "sh", [("0", "R")], pages)
    cmdline = root / "100" / "cmdline"
    cmdline.write_text(
        "\0".join(["/bin/sh", "-c", IF_PARENT_LIVES, "7", "numactl", "--membind=0", "--", "bwa", ""])
    )
    shell = Observed()
    look(100, shell, root)
    assert shell == Observed()
    cmdline.write_text("")
    look(100, shell, root)
    assert shell == Observed()
    cmdline.write_text("/bin/sh\0run.sh\0")
    script = Observed()
    look(100, script, root)
    assert script.pages == {0: 5}


def test_a_program_that_starts_is_never_seen_on_the_pus_of_the_launcher():
    """Looks from the first moment on see nothing or the placed program."""
    pu = max(os.sched_getaffinity(0))
    for _ in range(10):
        what = Observed()
        argv = ["numactl", f"--physcpubind={pu}", "--", "cat"]
        with child(argv, stdin=subprocess.PIPE) as process:
            while not what.looks:
                look(process.pid, what)
        assert what.pus == {pu}


def test_dead_threads_do_not_count(proc):
    what = Observed()
    root = proc(100, "a", [("0", "R"), ("0-9", "Z (zombie)"), ("5", "X (dead)")], "")
    look(100, what, root)
    assert (what.threads, what.pus) == (1, {0})


def test_a_kernel_without_numa_maps(proc, tmp_path):
    root = proc(100, "a", [("0", "R")], "")
    (root / "100" / "numa_maps").unlink()
    what = Observed()
    look(100, what, root)
    assert what == Observed()  # that process has gone
    (root / "self" / "numa_maps").unlink()
    look(100, what, root)
    assert "cannot be verified: this kernel has no numa_maps" in verify(asked(), 1, what)


def test_a_process_that_is_not_there(tmp_path):
    what = Observed()
    look(4_194_305, what)
    look(1, what, tmp_path)
    assert what == Observed()
    assert family(1, tmp_path) == [1]


@pytest.mark.parametrize(
    ("name", "mode"),
    [("default", "default"), ("membind", "bind:0"), ("interleave", "interleave:0"), ("localalloc", "local")],
)
def test_stored_maps_of_a_real_bwa(proc, golden, name, mode):
    what = Observed()
    look(100, what, proc(100, "bwa", [("0-1", "S")] * 3, golden(f"numa_maps_{name}.txt")))
    assert list(what.modes) == [mode]
    assert list(what.pages) == [0]
    assert what.pages[0] == what.modes[mode] > 100


POLICY_OF_A_THREAD = """
import ctypes, platform, sys, threading
number = {"x86_64": 238, "aarch64": 237}[platform.machine()]
def run():
    interleave, node = 3, ctypes.c_ulong(1)
    refused = ctypes.CDLL(None).syscall(number, interleave, ctypes.byref(node), 64)
    print("refused" if refused else "set", flush=True)
    sys.stdin.read()
threading.Thread(target=run).start()
"""


def test_a_policy_that_a_thread_has_set_for_itself_is_seen():
    argv = [sys.executable, "-c", POLICY_OF_A_THREAD]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            if process.stdout.readline() == "refused\n":
                pytest.skip("this user may not set memory policies here")
            look(process.pid, what := Observed())
            assert what.thread_modes == {"interleave:0"}
            assert verify(asked("original", "whole", what.pus), 1, what).startswith("a thread's memory policy is ")
        finally:
            process.stdin.close()
            process.wait()


def test_processes_that_come_and_go_are_no_error():
    """Each file of /proc may vanish between two reads."""
    script = "i=0; while [ $i -lt 400 ]; do /bin/true & i=$((i+1)); done; wait"
    with subprocess.Popen(["sh", "-c", script]) as process:
        what = Observed()
        while process.poll() is None:
            look(process.pid, what)
    assert what.unreadable == ""


MAPS = """\
5577000-5578000 r-xp 00000000 fd:00 11 /usr/bin/aligner
7f0000000000-7f0000400000 r--s 00000000 00:2b 77 /dev/shm/firsttouch-1/i.bt2 (deleted)
7f0000400000-7f0000401000 r--s 00000000 00:63 5 /data/an index.bt2
"""
NUMA_MAPS = """\
05577000 default file=/usr/bin/aligner mapped=1 N3=1 kernelpagesize_kB=4
7f0000000000 default file=/firsttouch-1/i.bt2 huge mapped=600 N0=512 N1=88 kernelpagesize_kB=4
7f0000400000 default file=/data/an\\040index.bt2 mapped=1 N2=1 kernelpagesize_kB=4
"""


def index_pages(tmp_path, **values):
    (tmp_path / "maps").write_text(MAPS)
    pages = IndexPages("node-index", must_map=True, **values)
    pages.look(tmp_path, NUMA_MAPS)
    return pages


def test_the_pages_of_a_mapped_index(tmp_path):
    device = os.makedev(0, 0x2B)
    pages = index_pages(tmp_path, files=frozenset({(device, 77)}), copy_pages={0: 512, 1: 512})
    assert (pages.mapped, pages.pages, pages.wrong()) == (True, {0: 512, 1: 88}, "")
    # A file system may show another device than stat(2): then the path tells the file.
    pages = index_pages(tmp_path, paths=frozenset({"/data/an index.bt2"}))
    assert (pages.pages, pages.wrong()) == ({2: 1}, "")
    pages = index_pages(tmp_path, files=frozenset({(device, 77)}), copy_pages={0: 512})
    assert pages.wrong().endswith("but mapped pages of the index are on NUMA nodes 1")
    pages = index_pages(tmp_path, files=frozenset({(device, 78)}), copy_pages={0: 512})
    assert pages.wrong() == "node-index was requested, but the program does not map its copy of the index"
    pages = index_pages(tmp_path, misplaced="9 of 10 pages are outside of NUMA nodes 0")
    assert pages.wrong().endswith("but of the copy of the index 9 of 10 pages are outside of NUMA nodes 0")


def test_a_program_that_ends_at_once_is_not_said_to_map_no_index(tmp_path):
    missing = index_pages(tmp_path)
    assert "ended before it was seen to map the index" in verify(asked(), 2, observed(GOOD, index=missing))
    late = observed(GOOD, looks=10, index=missing)
    assert (
        verify(asked(), 2, late) == "node-index was requested, but the program does not map the files of the index"
    )
    assert late.to_dict()["memory"]["index"] == {
        "copy_pages": {},
        "copy_huge_bytes": 0,
        "mapped": False,
        "mapped_pages": {},
    }
