# SPDX-License-Identifier: Apache-2.0
"""One name for a host, whatever its hostname has behind it."""

from types import SimpleNamespace

import pytest

from firsttouch.host import emulation
from firsttouch.records.schema import Record


@pytest.mark.parametrize(
    ("hostname", "node", "name"),
    [
        ("n1", "", "n1"),
        ("n1.cluster.example", "", "n1"),
        ("n1.cluster.example", "node-1", "node-1"),
        ("10.0.0.7", "", "10.0.0.7"),
    ],
)
def test_slurms_name_or_the_short_one(monkeypatch, hostname, node, name):
    monkeypatch.setattr("os.uname", lambda: SimpleNamespace(nodename=hostname))
    monkeypatch.setenv("SLURMD_NODENAME", node)
    assert emulation.host_name() == name
    assert Record("topology", "pus", "1", "neither", (1.0,)).host == name
