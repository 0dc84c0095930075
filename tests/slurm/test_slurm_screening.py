# SPDX-License-Identifier: Apache-2.0
"""Hosts that are due are submitted once, at low priority, and only if they are in service."""

from __future__ import annotations

import json
from typing import Any

from slurm_site import Site


def due(site: Site, *argv: object) -> dict[str, Any]:
    done = site.call("fleet", "due", "--system", "sound", "--hosts", "n[1-5],n6X", *argv, "--json")
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_due_hosts_are_submitted_once_and_give_way(site: Site) -> None:
    site.slurm.ask("scontrol", "update", "nodename=n2", "state=drain", "reason=fan of psu 2")
    first = due(site, "--submit", "--count", 2)
    assert [host["host"] for host in first["hosts"]] == ["n1", "n3"]
    assert first["left_out"] == {"n2": "drain"}
    assert (len(first["jobs"]), first["later"], first["refused"]) == (2, 3, {})
    for job in first["jobs"]:
        assert " Nice=10000 " in site.slurm.ask("scontrol", "-o", "show", "job", job)
    collector = site.slurm.ask("scontrol", "-o", "show", "job", first["collector"])
    assert {f"afterany:{job}" in collector for job in first["jobs"]} == {True}, collector
    # Another call does not submit these hosts again.
    second = due(site, "--count", 2)
    assert [host["host"] for host in second["hosts"]] == ["n4", "n5"]
    assert {second["left_out"][host].partition(" a ")[0] for host in ("n1", "n3")} == {"has"}
