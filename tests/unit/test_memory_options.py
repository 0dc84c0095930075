# SPDX-License-Identifier: Apache-2.0
"""The memory options: their names, what sets them, what this host and a program support, what the kernel shows."""

import ctypes
import itertools
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from firsttouch.errors import BadInput, CannotHere
from firsttouch.host.pages import Memory
from firsttouch.host.topology import load
from firsttouch.scenarios import evidence, memory_options
from firsttouch.scenarios.placement import ScenarioName, parse_name, plan
from firsttouch.scenarios.policies import policies

MB = 1 << 20
#: smaps_rollup of a process with 400 MB in huge pages.
ROLLUP = """\
55d0c0a66000-7ffd5d5f1000 ---p 00000000 00:00 0                          [rollup]
Rss:              428072 kB
Anonymous:        420192 kB
AnonHugePages:    407552 kB
ShmemPmdMapped:     2048 kB
Private_Hugetlb:    4096 kB
"""


def combinations():
    kinds = [[None, *(o.name for o in memory_options.options().values() if o.kind == kind)] for kind in
             ("pages", "allocator", "index")]  # fmt: skip
    return [tuple(name for name in chosen if name) for chosen in itertools.product(*kinds)]


def test_names_with_options_are_read_as_they_are_written():
    original = policies()["original"]
    for options in combinations():
        for threads in (None, 4):
            name = ScenarioName(2, original, threads, options)
            assert parse_name(str(name)) == parse_name(str(name).upper()) == name
    assert parse_name("8x16-bound+MIMALLOC+thp") == ScenarioName(8, original, 16, ("thp", "mimalloc"))
    assert memory_options.suffix(("thp", "mimalloc")) == "+thp+mimalloc"


@pytest.mark.parametrize(
    ("suffix", "reason"),
    [
        ("thq", "no memory option 'thq': there are thp, .*; did you mean 'thp'?"),
        ("huge+thp", "huge and thp exclude each other: both are options of the kind 'pages'"),
        ("jemalloc+thp+mimalloc", "jemalloc and mimalloc exclude each other"),
    ],
)
def test_wrong_suffixes(suffix, reason):
    with pytest.raises(BadInput, match=reason):
        parse_name(f"1x-default+{suffix}")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[a]\nkind = 'pages'\n", r"f.toml:1: key 'title'"),
        ("[a]\ntitle = 't'\nkind = 'pages'\nhuge = [0.5]\n", r"f.toml:4: a.huge: "),
        ("[A]\ntitle = 't'\nkind = 'pages'\n", r"f.toml:1: "),
    ],
)
def test_wrong_files(text, reason):
    with pytest.raises(BadInput, match=reason):
        memory_options.parse(text, "f.toml")


def test_variables_of_the_user_are_kept():
    user = {"GLIBC_TUNABLES": "glibc.malloc.arena_max=2", "LD_PRELOAD": "libx.so", "MALLOC_CONF": "a:b"}
    added = memory_options.environment(("thp",), user)
    assert added["GLIBC_TUNABLES"].startswith("glibc.malloc.arena_max=2:glibc.malloc.hugetlb=1:glibc.")
    assert added["LD_PRELOAD"] == "libx.so:libstdc++.so.6"
    added = memory_options.environment(("thp", "jemalloc"), user)
    assert added["LD_PRELOAD"] == "libx.so:libjemalloc.so.2"
    assert "thp:always" in added["MALLOC_CONF"]
    assert "GLIBC_TUNABLES" not in added
    assert memory_options.environment(("jemalloc",), {}) == {"LD_PRELOAD": "libjemalloc.so.2"}
    assert memory_options.environment((), user) == {}


def test_a_program_inherits_that_huge_pages_are_off():
    def off():
        return ctypes.CDLL(None).prctl(42, 0, 0, 0, 0)

    def of_child():
        return subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True, check=True).stdout

    with memory_options.inherit_settings(("no-thp",)):
        assert "THP_enabled:\t0" in of_child()
        assert off() == 1
    assert off() == 0
    assert "THP_enabled:\t1" in of_child()


def test_what_the_host_must_have(monkeypatch, tmp_path):
    def refusal(**fields):
        new = memory_options.MemoryOption("x", "t", "pages", **fields)
        monkeypatch.setattr(memory_options, "options", lambda: {"x": new})
        memory_options._refusal.cache_clear()
        return memory_options.refusal(("x",))

    file = tmp_path / "enabled"
    setting = memory_options.Setting(str(file), ("always", "madvise"))
    assert refusal(setting=setting) == f"memory option x: {file}: No such file or directory"
    file.write_text("always madvise [never]\n")
    assert "enabled is never: an administrator must set it to always or madvise" in refusal(setting=setting)
    file.write_text("always [madvise] never\n")
    assert refusal(setting=setting) == ""
    numbers = tmp_path / "nr"
    for text, wrong in (("0\n", True), ("12\n", False), ("x", True)):
        numbers.write_text(text)
        assert bool(refusal(positive=(str(numbers),))) == wrong
    reason = refusal(preload=("libfirsttouch-nowhere.so.9",), package="libx9")
    assert "libfirsttouch-nowhere.so.9 cannot be loaded: install its package (Debian: libx9)" in reason
    memory_options._refusal.cache_clear()


def test_an_allocator_without_huge_pages_refuses_them():
    assert memory_options.refusal(("thp", "tcmalloc")) == "tcmalloc does not support thp: leave one of them out"
    with pytest.raises(CannotHere, match="tcmalloc does not support thp"):
        plan(load()).scenario("1x-default+thp+tcmalloc")


def test_programs_that_ignore_a_library(tmp_path):
    def reason(program):
        return memory_options.unfit(("thp", "mimalloc"), str(program))

    assert reason(shutil.which("cat")) == reason("not-there") == ""
    script = tmp_path / "script"
    script.write_text("#!/usr/bin/env cat\n")
    script.chmod(0o755)
    assert reason(script) == ""
    elf = tmp_path / "static"
    elf.write_bytes(b"\x7fELF\2\1\1".ljust(32, b"\0") + struct.pack("<Q", 64).ljust(22, b"\0") + bytes(42))
    elf.chmod(0o755)
    assert reason(elf) == f"{elf} is linked statically, so mimalloc cannot be loaded into it"
    script.write_text(f"#!{elf}\n")
    assert "is linked statically" in reason(script)
    assert memory_options.unfit(("thp",), str(elf)) == ""
    musl = tmp_path / "musl"
    musl.write_bytes(Path(shutil.which("cat")).read_bytes().replace(b"/ld-linux", b"/ld-muslx", 1))
    musl.chmod(0o755)
    assert "is not linked with glibc" in reason(musl)
    assert memory_options.unfit(("thp",), str(musl)) == f"{musl} is not linked with glibc, so it ignores thp"
    assert memory_options.unfit(("no-thp",), str(musl)) == ""
    assert memory_options.unfit(("thp",), shutil.which("cat")) == ""


def test_a_program_whose_linker_is_named_at_its_end(tmp_path):
    """patchelf moves a longer path of a linker, and the table of the program's parts, to the end of the file."""
    program = Path(shutil.which("cat")).read_bytes()
    begin = program.rindex(b"\0", 0, program.index(b"/ld-linux")) + 1
    path = program[begin : program.index(b"\0", begin) + 1]
    named = program.replace(struct.pack("=Q", begin), struct.pack("=Q", len(program)), 1) + path
    (at,), (size, count) = struct.unpack_from("=Q", named, 32), struct.unpack_from("=HH", named, 54)
    both = named[:32] + struct.pack("=Q", len(named)) + named[40:] + named[at : at + size * count]
    musl = both.replace(b"/ld-linux", b"/ld-muslx")
    for content, word in ((named, ""), (both, ""), (musl, "glibc"), (program[:40], ""), (b"", "")):
        file = tmp_path / "program"
        file.write_bytes(content)
        file.chmod(0o755)
        assert bool(reason := memory_options.unfit(("mimalloc",), str(file))) == bool(word), reason
        assert word in reason


def test_a_setuid_program_of_another_user_is_refused(tmp_path, monkeypatch):
    program = tmp_path / "program"
    shutil.copy(shutil.which("cat"), program)
    program.chmod(0o4755)
    assert memory_options.unfit(("mimalloc",), str(program)) == ""
    monkeypatch.setattr("os.getuid", lambda: program.stat().st_uid + 1)
    assert "rights of another user" in memory_options.unfit(("mimalloc",), str(program))


def test_memory_is_summed_over_processes():
    memory, wanted = Memory(), memory_options.libraries()
    memory.add(
        ROLLUP, "7f00 default file=/usr/lib/libjemalloc.so.2 mapped=3\n", "Name:\tx\nTHP_enabled:\t1\n", wanted
    )
    memory.add(ROLLUP, "", "Name:\tx\nTHP_enabled:\t0\n", wanted)
    memory.add("", "", "", wanted)
    assert memory.to_dict() == {
        "anonymous_bytes": 2 * 420192 << 10,
        "huge_bytes": 2 * 407552 << 10,
        "shared_huge_bytes": 4 * MB,
        "hugetlb_bytes": 8 * MB,
        "allocators": ["libjemalloc.so.2"],
        "thp_disabled": True,
    }


@pytest.mark.parametrize(
    ("names", "memory", "reason"),
    [
        (("thp",), Memory(100 * MB, 50 * MB), ""),
        (("thp",), Memory(100 * MB, 49 * MB), "thp was requested, but 49 MiB of 100 MiB are in transparent"),
        (("thp",), Memory(4 * MB, 4 * MB), "thp was requested, but the program has only 4 MiB of anonymous"),
        (("huge",), Memory(10 * MB, hugetlb=10 * MB), ""),
        (("huge",), Memory(10 * MB, hugetlb=8 * MB), "huge was requested, but 8 MiB of 18 MiB are in pages of"),
        (("no-thp",), Memory(100 * MB, thp_disabled=True), ""),
        (("no-thp",), Memory(100 * MB, 2 * MB, thp_disabled=True), "no-thp was requested, but 2 MiB of 100 MiB"),
        (("no-thp",), Memory(100 * MB), "no-thp was requested, but transparent huge pages are not switched off"),
        (("mimalloc",), Memory(libraries=frozenset({"libmimalloc.so.2"})), ""),
        (("mimalloc",), Memory(libraries=frozenset({"libjemalloc.so.2"})), "libmimalloc.so.2 is not mapped"),
    ],
)
def test_what_the_kernel_must_show(names, memory, reason):
    message = evidence.wrong_memory(names, memory)
    assert reason in message
    assert bool(message) == bool(reason)


def test_index_options_are_tried_for_an_aligner_if_they_are_named():
    assert memory_options.select_for_aligner("thp,node-index,shared") == ("thp", "shared", "node-index")
    assert memory_options.select_for_aligner("all") == memory_options.select_options("all")
    with pytest.raises(BadInput, match=r"node-index: .*aligners"):
        memory_options.select_options("node-index")


def test_options_of_a_scenario_are_those_of_its_placements():
    planned = plan(load())
    scenario = planned.scenario("1x-default+no-thp+private")
    assert (scenario.base_name, scenario.options) == (f"1x{scenario.threads}-default", ("no-thp", "private"))
    assert scenario.name.endswith("-default+no-thp+private")
    assert {p.options for p in scenario.placements} == {scenario.options}
    assert scenario.to_dict()["placements"][0]["memory_options"] == ["no-thp", "private"]
    assert scenario.with_options(()) == planned.scenario("1x-default")
    assert planned.scenario(scenario.name) == scenario


def test_huge_pages_are_looked_for_until_there_is_memory_for_them():
    assert evidence.too_small(("thp",), Memory(7 * MB))
    assert evidence.too_small(("huge", "jemalloc"), Memory())
    assert not evidence.too_small(("thp",), Memory(7 * MB, hugetlb=MB))
    assert not evidence.too_small(("no-thp", "jemalloc"), Memory())
