# SPDX-License-Identifier: Apache-2.0
"""Scenarios on memory tiers: which banks they use, the kernel's interleave weights, and the check of the pages."""

import pytest
from msgspec.structs import replace

from firsttouch.errors import CannotHere
from firsttouch.execution.placement_check import Observed, verify
from firsttouch.host.topology import NumaNode, Pu, Topology
from firsttouch.scenarios import placement, tiers
from firsttouch.scenarios.placement import plan

GIB = 2**30


def host(*attached):
    """Return two packages of four PUs (NUMA nodes 0 and 1); *attached* are (NUMA node, subtype, neighbours)."""
    members = [tuple(range(4)), tuple(range(4, 8))]
    banks = [NumaNode(n, pus, 64 * GIB, "DRAM", near=frozenset(pus)) for n, pus in enumerate(members)]
    for number, subtype, neighbours in attached:
        near = frozenset(pu for n in neighbours for pu in members[n])
        banks.append(NumaNode(number, (), 16 * GIB, subtype, near=near))
    return Topology(
        numa_nodes=tuple(banks),
        pus=tuple(Pu(p, p, n, n) for n, pus in enumerate(members) for p in pus),
        caches=(),
        distances={},
        allowed_pus=frozenset(range(8)),
        allowed_nodes=frozenset(bank.index for bank in banks),
        info={"HostName": "n1"},
    )


HBM = host((2, "HBM", [0]), (3, "HBM", [1]))
CXL = host((2, "CXL-DRAM", [0]), (3, "CXL-DRAM", [1]))


def numactl(planned, name):
    return [" ".join(p.numactl) for p in planned.scenario(name).placements]


def test_each_instance_has_the_tiers_of_its_own_numa_nodes():
    planned = plan(HBM, policies="usual")
    assert {s.policy for s in planned.scenarios} == {
        *("original", "localalloc", "interleave", "fast-tier", "weighted-tiers")
    }
    assert numactl(planned, "1x-fast") == ["--preferred-many=2-3"]
    assert numactl(planned, "2x4-fast") == [f"--cpunodebind={n} --preferred-many={n + 2}" for n in (0, 1)]
    assert numactl(planned, "2x4-tiered") == [
        f"--cpunodebind={n} --weighted-interleave={n},{n + 2}" for n in (0, 1)
    ]
    # On CXL the DRAM is the fast tier.
    assert numactl(plan(CXL, policies="all"), "2x4-fast")[1] == "--cpunodebind=1 --preferred-many=1"
    # The memory of all tiers counts.
    need = placement.Need(0, 70 * GIB, 0)
    assert {s.policy for s in plan(HBM, need, policies="usual").scenarios if s.instances == 2} == {
        "weighted-tiers"
    }


def test_a_host_with_one_tier_lists_none():
    usual = plan(host(), policies="usual")
    assert {s.policy for s in usual.scenarios} == {"original", "localalloc", "interleave"}
    assert plan(host()).scenarios == usual.scenarios
    assert plan(HBM).scenarios == plan(HBM, policies="thesis").scenarios
    with pytest.raises(CannotHere, match="fast-tier"):
        plan(host(), policies="all").scenario("2x4-fast")


def test_a_bank_whose_pus_are_offline_is_no_other_tier():
    without_pus = host((2, "", [0]))
    assert [t.name for t in tiers.tiers(without_pus)] == ["DRAM", "memory without PUs"]
    *others, bank = without_pus.numa_nodes
    offline = replace(without_pus, numa_nodes=(*others, replace(bank, offline=(8, 9))))
    assert [t.banks for t in tiers.tiers(offline)] == [(0, 1, 2)]


@pytest.fixture
def weights(monkeypatch, tmp_path):
    """Return a function that sets the weights of the NUMA nodes 0, 1, …."""
    monkeypatch.setattr(tiers, "WEIGHTS", tmp_path)
    monkeypatch.setattr(placement, "refusal", lambda *_: "")

    def set_to(*values):
        for node, weight in enumerate(values):
            (tmp_path / f"node{node}").write_text(f"{weight}\n")

    return set_to


def test_the_shares_of_pages_follow_the_weights(weights):
    weights(3, 3, 1, 1)
    asked = plan(CXL, policies="usual").scenario("2x4-tiered").placements[1]

    def reason(pages, mode="weighted interleave:1,3"):
        seen = Observed(pages=pages, modes={mode: sum(pages.values())}, held=frozenset(asked.pus))
        return verify(asked, 4, replace(seen, pus=frozenset(asked.pus), looks=5, threads=4))

    assert reason({1: 30000, 3: 10000}) == ""
    assert reason({1: 30900, 3: 9100}) == ""  # within the tolerance and one huge page in turn
    uneven = "pages per NUMA node 1: 20000, 3: 20000 by weights 3:1: uneven by more than 5%"
    assert reason({1: 20000, 3: 20000}) == uneven
    assert "outside 1,3" in reason({1: 27000, 0: 3000, 3: 10000})
    assert "requested was weighted interleave" in reason({1: 30000, 3: 10000}, "interleave:1,3")
    # Without the weights, as before Linux 6.9, only the NUMA nodes are checked.
    (tiers.WEIGHTS / "node3").unlink()
    assert reason({1: 20000, 3: 20000}) == ""
