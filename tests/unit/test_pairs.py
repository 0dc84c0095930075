# SPDX-License-Identifier: Apache-2.0
"""The probe's plan of pairs, called in a library that is built from its source."""

import ctypes
import itertools
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from factories.native_probe import SOURCE
from factories.processes import captured
from factories.stored_roots import hybrid_root, numa_root

if shutil.which("cc") is None:
    pytest.skip("there is no C compiler", allow_module_level=True)

CORE, CACHE, NUMA_NODE, PACKAGE, HOST = range(5)
LEVELS_MOST = 12


class Level(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int64), ("share", ctypes.c_int), ("cache_level", ctypes.c_int))


class Place(ctypes.Structure):
    _fields_ = (("pu", ctypes.c_int), ("count", ctypes.c_int), ("levels", Level * LEVELS_MOST))


class Pair(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int) for name in ("a", "b", "share", "cache_level")),
        *((name, ctypes.c_int64) for name in ("of_kind", "all_of_kind")),
    )


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    file = tmp_path_factory.mktemp("pairs") / "pairs.so"
    sources = [SOURCE / "src" / name for name in ("pairs.c", "lists.c", "fail.c")]
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-D_GNU_SOURCE", "-o", file, *sources], check=True)
    loaded = ctypes.CDLL(str(file))
    loaded.pairs_plan.restype = ctypes.POINTER(Pair)
    loaded.free.argtypes = [ctypes.c_void_p]
    return loaded


def host(packages, nodes, caches, cores, threads):
    """Return the places of a regular host: the numbers of each thing within the next larger one."""
    places = []
    counts = (packages, nodes, caches, cores, threads)
    for pu, where in enumerate(itertools.product(*map(range, counts))):
        place = Place(pu=pu)
        for share, members, level in ((CORE, 4, 0), (CACHE, 3, 3), (NUMA_NODE, 2, 0), (PACKAGE, 1, 0)):
            group = 0
            for number, count in zip(where[:members], counts, strict=False):
                group = group * count + number
            place.levels[place.count] = Level(share * 10**6 + group, share, level)
            place.count += 1
        places.append(place)
    return places


def plan(library, places, wanted):
    planned = ctypes.c_int64()
    array = (Place * max(1, len(places)))(*places)
    pairs = library.pairs_plan(array, len(places), ctypes.c_int64(wanted), ctypes.byref(planned))
    chosen = [(p.a, p.b, p.share, p.of_kind, p.all_of_kind) for p in pairs[: planned.value]]
    library.free(pairs)
    return chosen


SHAPES = st.tuples(*(st.integers(1, most) for most in (2, 3, 2, 3, 2)))


@settings(max_examples=60, deadline=None)
@given(shape=SHAPES, wanted=st.integers(1, 400))
def test_plan(library, shape, wanted):
    places = host(*shape)
    count = len(places)
    all_pairs = {(a, b): plan_of for a, b, *plan_of in plan(library, places, 10**9)}
    assert set(all_pairs) == set(itertools.combinations(range(count), 2))
    chosen = plan(library, places, wanted)
    assert chosen == plan(library, places, wanted), "the choice is always the same"
    pairs = [(a, b) for a, b, *_ in chosen]
    assert len(pairs) == len(set(pairs)) == min(wanted, len(all_pairs))
    kinds = sorted({share for share, *_ in all_pairs.values()})
    # One pair of each kind of closeness comes first, the closest kind before the others.
    assert [share for _, _, share, *_ in chosen[: len(kinds)]] == kinds[:wanted]
    for share in kinds:
        of_kind = [p for p in chosen if p[2] == share]
        everything = sum(1 for kind, *_ in all_pairs.values() if kind == share)
        assert all(p[3:] == (len(of_kind), everything) for p in of_kind)
    # Neighbours follow, as far as they are wanted: they connect all places by their closest pairs.
    neighbours = {(a, a + 1) for a in range(count - 1)}
    if wanted >= len(neighbours) + len(kinds):
        assert neighbours <= set(pairs)
        # The others are of each kind in turn.
        rest = [share for a, b, share, *_ in chosen if (a, b) not in neighbours]
        left = {share: sum(1 for kind, *_ in all_pairs.values() if kind == share) for share in kinds}
        numbers = {share: sum(1 for p in chosen if p[2] == share) for share in kinds}
        fewest = min((numbers[share] for share in kinds if numbers[share] < left[share]), default=None)
        if fewest is not None and rest:
            assert fewest >= len(rest) // len(kinds)


@pytest.mark.parametrize("count", [0, 1])
def test_no_pairs_of_fewer_than_two_pus(library, count):
    assert plan(library, host(1, 1, 1, 1, 1)[:count], 5) == []


def test_a_large_host_is_sampled_all_over(library):
    """Two packages of 64 cores with two threads each: 32640 pairs, of which 2048 are measured."""
    chosen = plan(library, host(2, 1, 8, 8, 2), 2048)
    assert len(chosen) == 2048
    for share in (CORE, CACHE, NUMA_NODE, HOST):
        of_kind = [p for p in chosen if p[2] == share]
        assert len(of_kind) >= 128
        assert len({pu for a, b, *_ in of_kind for pu in (a, b)}) > 200


#: Prints the kinds of closeness of a stored host: what pairs share, the cache's level, and the number of pairs.
KINDS = """
#include <stdio.h>
#include "host.h"
int main(int count, char **names)
{
    file_root = names[count - 1];
    Host *host = host_load();
    int64_t planned;
    Pair *pairs = pairs_plan(host->places, host->place_count, INT64_MAX, &planned);
    for (int64_t i = 0; i < planned; i++)
        printf("%s%d %d\\n", share_names[pairs[i].share], pairs[i].cache_level, (int)pairs[i].all_of_kind);
    return 0;
}
"""


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    if not shutil.which("pkg-config") or subprocess.run(["pkg-config", "hwloc"], check=False).returncode:
        pytest.skip("hwloc's headers are not installed")
    folder = tmp_path_factory.mktemp("kinds")
    (folder / "kinds.c").write_text(KINDS)
    names = ("host.c", "available.c", "fail.c", "json.c", "lists.c", "pairs.c")
    sources = [folder / "kinds.c", *(SOURCE / "src" / name for name in names)]
    hwloc = captured(["pkg-config", "--cflags", "--libs", "hwloc"], check=True)
    options = ["-O0", "-D_GNU_SOURCE", f"-I{SOURCE / 'src'}", "-o", folder / "kinds"]
    subprocess.run(["cc", *options, *sources, *hwloc.stdout.split()], check=True)
    return folder / "kinds"


@pytest.mark.parametrize(
    ("root", "expected"),
    [(numa_root, {"numa-node0 2", "host0 4"}), (hybrid_root, {"core0 1", "cache2 1", "cache3 4"})],
)
def test_what_pus_of_stored_hosts_share(kinds, tmp_path, root, expected):
    root = root(tmp_path / "root")
    shown = captured([kinds, root], check=True).stdout
    assert set(shown.splitlines()) == expected
