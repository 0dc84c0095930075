# SPDX-License-Identifier: Apache-2.0
"""The shared test data keep what they promise."""

import pytest
import requests

from factories.host_records import KIB, MIB, Machine
from factories.http_server import serving
from firsttouch.host.topology import parse_xml


@pytest.mark.parametrize("nodes", [1, 2, 8])
def test_the_machines_topology_is_one_that_firsttouch_reads(nodes: int) -> None:
    topology = parse_xml(Machine(nodes, 8).xml())
    assert [len(n.pus) for n in topology.numa_nodes] == [8] * nodes
    assert sorted({(c.level, c.size_bytes) for c in topology.caches}) == [(1, 32 * KIB), (2, MIB), (3, 16 * MIB)]
    assert len(topology.distances) == nodes**2


def test_the_server_honours_ranges_only_of_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with serving(b"0123456789") as server:
        part = requests.get(server.url, headers={"Range": "bytes=4-", "If-Range": '"one"'}, timeout=5)
        whole = requests.get(server.url, headers={"Range": "bytes=4-", "If-Range": '"old"'}, timeout=5)
    assert (part.status_code, part.content) == (206, b"456789")
    assert (whole.status_code, whole.content) == (200, b"0123456789")
