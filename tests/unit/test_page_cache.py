# SPDX-License-Identifier: Apache-2.0
"""The page cache of real files: cached, dropped, read again, and hidden from other users by Linux."""

import json
import mmap
import os
import random
import tempfile
import traceback
from pathlib import Path

import pytest

from firsttouch.errors import CannotHere, RunFailed
from firsttouch.execution import index_cache
from firsttouch.execution.index_cache import Cached
from firsttouch.host.pages import UNIT, file_bytes, file_mapping, mapped_pages, node_pages, resident
from firsttouch.host.topology import load
from firsttouch.records.cases import Case
from firsttouch.records.schema import Record
from firsttouch.report import model
from firsttouch.scenarios.placement import plan
from firsttouch.systems import definition

PAGE = mmap.PAGESIZE
HOST = load()
IN_MEMORY = index_cache.IN_MEMORY
WHOLE = plan(HOST).scenario("1x-default").placements


@pytest.fixture
def folder():
    """Returns a folder on a disk, which every user may enter."""
    places = (Path(tempfile.gettempdir()), Path.home())
    place = next((p for p in places if index_cache.file_system(p) not in IN_MEMORY), None)
    if place is None:
        pytest.skip(f"NOT TESTED: neither {places[0]} nor {places[1]} is on a disk")
    with tempfile.TemporaryDirectory(dir=place) as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def dropped(folder):
    """Returns a function that writes a file of some bytes, and drops it from the page cache."""

    def write(size, name="file"):
        file = folder / name
        file.write_bytes(bytes(range(251)) * (size // 251) + bytes(size % 251))
        index_cache.drop([file])
        return file

    return write


def read_pages(file, numbers):
    """Read single pages of a file, without others ahead."""
    with file.open("rb", buffering=0) as stream:
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        for number in numbers:
            os.pread(stream.fileno(), 1, number * PAGE)


def as_nobody(work):
    """Return what *work* returns in a process of the user nobody."""
    receive, send = os.pipe()
    if not (child := os.fork()):
        try:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            os.write(send, json.dumps(work()).encode())
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    os.close(send)
    with os.fdopen(receive, "rb") as answer:
        text = answer.read()
    assert os.waitpid(child, 0)[1] == 0
    return json.loads(text)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.mark.parametrize("size", [0, 1, PAGE, 7 * PAGE + 5])
def test_a_dropped_file_is_cached_again_when_it_is_read(dropped, size):
    file = dropped(size)
    assert index_cache.look([file]) == Cached(size, 0, {})
    file.read_bytes()
    cached = index_cache.look([file])
    assert (cached.size, cached.cached, cached.unknown) == (size, size, "")
    assert sum(cached.pages.values()) == -(-size // PAGE) * PAGE // UNIT


def test_only_what_is_read_is_cached_and_looking_reads_nothing(dropped, monkeypatch):
    monkeypatch.setattr(index_cache, "WINDOW", 64 * PAGE)  # a range ends at a window's end
    file = dropped(300 * PAGE - 100)
    numbers = set()
    generator = random.Random(18)  # noqa: S311 - no secret
    for count in (1, 30, 100):
        numbers.update(generator.sample(range(300), count))
        expected = len(numbers) * PAGE - (100 if 299 in numbers else 0)
        for _ in range(9):  # the kernel may drop any page at any time
            read_pages(file, numbers)
            looks = [index_cache.look([file]) for _ in range(2)]
            assert all(cached.cached <= expected for cached in looks)
            if all(cached.cached == expected for cached in looks):
                break
        assert [cached.cached for cached in looks] == [expected] * 2
        for cached in looks:
            assert sum(cached.pages.values()) == len(numbers) * PAGE // UNIT


def test_filling_reads_what_is_not_cached(dropped):
    file = dropped(9 * PAGE + 1)
    assert index_cache.look([file], fill=True).cached == 9 * PAGE + 1
    assert index_cache.look([file]).cached == 9 * PAGE + 1


def test_pages_that_a_process_maps_stay_and_it_is_named(dropped):
    file = dropped(400 * PAGE)
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ) as mapping:
        assert len(bytes(mapping)[::PAGE]) == 400
        state = index_cache.restore([file], index_cache.COLD, WHOLE)
    assert state.cached.cached > 0
    assert "index cache cold: " in state.reason
    assert "another program uses it" in state.reason
    assert index_cache.restore([file], index_cache.COLD, WHOLE).reason == ""


@pytest.mark.parametrize("state", [index_cache.LOCAL, index_cache.INTERLEAVE])
@pytest.mark.parametrize("before", ["dropped", "partly", "whole"])
def test_a_state_is_restored_whatever_was_before(dropped, state, before):
    file = dropped(2000 * PAGE + 7)
    read_pages(file, {"dropped": (), "partly": range(0, 2000, 3), "whole": range(2001)}[before])
    restored = index_cache.restore([file], state, WHOLE)
    assert (restored.state, restored.reason) == (state, "")
    # The kernel may drop a few pages at any time.
    assert 0.99 * (2000 * PAGE + 7) <= restored.cached.cached <= 2000 * PAGE + 7
    assert set(restored.cached.pages) <= set(index_cache.banks_of(state, WHOLE))


def test_as_is_changes_nothing(dropped):
    file = dropped(20 * PAGE)
    read_pages(file, [3])
    for _ in range(2):
        assert index_cache.restore([file], index_cache.AS_IS, WHOLE).cached.cached == PAGE


@pytest.mark.parametrize(
    ("cached", "reason"),
    [
        (Cached(40_960_000, 40_960_000, {1: 5000, 3: 5000}), ""),
        (Cached(40_960_000, 30_000_000, {1: 3662, 3: 3663}), "28.6 MiB of 39.1 MiB are cached"),
        (
            Cached(40_960_000, 40_960_000, {1: 4900, 2: 200, 3: 4900}),
            "pages per NUMA node 1: 4900, 2: 200, 3: 4900: more than 1% outside 1,3",
        ),
        (
            Cached(40_960_000, 40_960_000, {1: 7000, 3: 3000}),
            "pages per NUMA node 1: 7000, 3: 3000: uneven by more than 2%",
        ),
        # Too few pages to be even: a file is read ahead in pieces.
        (Cached(409_600, 409_600, {3: 100}), ""),
        (Cached(5, None, None, "it is hidden"), "it is hidden"),
    ],
)
def test_what_is_wrong(cached, reason):
    assert index_cache.wrong(cached, (1, 3)) == reason


def test_an_index_that_is_larger_than_the_bank_is_refused(folder):
    with (folder / "huge").open("wb") as file:
        file.truncate(1 << 43)  # without any block
    with pytest.raises(CannotHere, match=r"local: .* 8 TiB, NUMA nodes 0 "):
        index_cache.check([folder / "huge"], index_cache.LOCAL, WHOLE, HOST)


@pytest.fixture
def memory():
    """Returns a folder in memory with room for 40 pages."""
    try:
        with tempfile.TemporaryFile(dir="/dev/shm") as file:
            file.write(bytes(50 * PAGE))
    except OSError as error:
        pytest.skip(f"NOT TESTED: nothing can be written to /dev/shm: {error}")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)


def test_files_in_memory_cannot_be_dropped(memory):
    if index_cache.file_system(memory) not in IN_MEMORY:
        pytest.skip(f"{memory} is not in memory")
    (memory / "file").write_bytes(b"x" * 10 * PAGE)
    with pytest.raises(CannotHere, match=r"tmpfs.*: use as-is"):
        index_cache.restore([memory / "file"], index_cache.COLD, WHOLE)


def test_a_file_that_is_not_there_is_one_line(folder):
    with pytest.raises(RunFailed, match=r"none: No such file"):
        index_cache.look([folder / "none"])
    with pytest.raises(RunFailed, match=r"index .*none"):
        index_cache.read([folder / "none"], [WHOLE[0].numa_nodes[0]])


@needs_root
def test_the_state_of_others_files_is_unknown_and_not_wrong(dropped):
    file = dropped(50 * PAGE)
    hidden = as_nobody(lambda: [index_cache.look([file]).to_dict(), index_cache.is_visible([file])])
    assert hidden[0] | {"unknown": ""} == {"size": 50 * PAGE, "cached": None, "pages": None, "unknown": ""}
    assert hidden[0]["unknown"].startswith(f"{file}: Linux shows what is cached only to")
    assert hidden[1] is False
    assert index_cache.is_visible([file])
    file.chmod(0o666)
    assert as_nobody(lambda: index_cache.look([file]).cached) == 0


@needs_root
def test_others_can_have_the_index_read_anew_but_not_cold(dropped):
    file = dropped(2000 * PAGE)
    read_pages(file, range(0, 2000, 2))

    def restored():
        with pytest.raises(CannotHere, match=r"cold: .* interleave or local"):
            index_cache.check([file], index_cache.COLD, WHOLE, HOST)
        return index_cache.restore([file], index_cache.INTERLEAVE, WHOLE).to_dict()

    assert as_nobody(restored) == index_cache.restore([file], index_cache.INTERLEAVE, WHOLE).to_dict()


# ----------------------------------------------------------------------
# Records of different states are never compared

AMD = definition.load("amd-opteron")


def test_other_states_are_other_cases():
    check, metric = "placement", "alignment_time"
    published = next(r for r in AMD.references if (r.check, r.metric) == (check, metric))
    case = {**published.parameters, "scenario": "8x-bound", "index_cached_bytes": [7]}
    records = [
        Record(check, metric, "s", "lower", (1.0,), case | ({"index_cache": state} if state else {}))
        for state in ("", "cold", "interleave")
    ]
    assert len({Case.from_record(r).key for r in records}) == len(records)
    (view,) = model.split(records, (), None)
    assert len(view.valid) == len(records)
    datasets = sorted(model.dataset_of(record) for record in view.valid)
    dataset = case["dataset"]
    assert datasets == [dataset, f"{dataset}, index cache cold", f"{dataset}, index cache interleave"]
    # Published times are means of ten runs, nearly all of which found the index in the page cache.
    matched = [AMD.reference(r.check, r.metric, r.parameters) for r in records]
    assert matched == [published, None, published]


def test_pages_of_a_file_in_memory(memory):
    file, empty = memory / "file", memory / "empty"
    file.write_bytes(random.Random(1).randbytes(40 * PAGE))  # noqa: S311
    empty.touch()
    shown = resident(file)
    assert (sum(shown.nodes.values()), shown.huge_bytes) == (40 * PAGE // UNIT, 0)
    assert set(shown.nodes) <= {node.index for node in HOST.numa_nodes}
    assert sum(resident(empty).nodes.values()) == 0
    assert (shown + shown).nodes.total() == 80 * PAGE // UNIT


# ----------------------------------------------------------------------
# Lines of maps and numa_maps, as the kernel writes them


def test_pages_count_in_units_of_4_kib():
    line = "7f1000000000 bind:0-1 file=/x mapped=3 N0=1 N1=2 kernelpagesize_kB="
    assert [node_pages(line + size) for size in ("4", "64", "2048")] == [{0: n, 1: 2 * n} for n in (1, 16, 512)]
    assert node_pages("7f1000000000 default") == {}


def test_a_file_mapping_this_process(tmp_path):
    file = tmp_path / "two words"
    file.write_bytes(bytes(3 * mmap.PAGESIZE))
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ) as held:
        assert held[::4096]
        with open("/proc/self/maps") as maps:  # noqa: PTH123
            lines = maps.readlines()
        (text,) = (line for line in lines if line.rstrip().endswith(str(file)))
        assert file_bytes(text) == 3 * mmap.PAGESIZE
        assert 3 * mmap.PAGESIZE < file_bytes("".join(lines)) < 1 << 40
        (mapping,) = (m for m in map(file_mapping, lines) if m and m.path == str(file))
        assert mapping.file[1] == file.stat().st_ino
        with open("/proc/self/numa_maps") as text:  # noqa: PTH123
            pages = mapped_pages(text.read(), {mapping.address})
    assert sum(pages.values()) == 3 * os.sysconf("SC_PAGESIZE") // 4096
    assert file_mapping("Rss:                1704 kB") is None
