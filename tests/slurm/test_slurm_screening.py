# SPDX-License-Identifier: Apache-2.0
"""Hosts that are due are those in service, and those that were submitted are not due again."""

from __future__ import annotations

import json
from typing import Any

from slurm_site import Site


def due(site: Site, *argv: object) -> dict[str, Any]:
    done = site.call("fleet", "due", "--system", "sound", "--hosts", "n[1-5],n6X", *argv, "--json")
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_due_hosts_are_submitted_once(site: Site) -> None:
    site.slurm.ask("scontrol", "update", "nodename=n2", "state=drain", "reason=fan of psu 2")
    first = due(site, "--count", 2)
    assert (first["hostlist"], first["left_out"], first["later"]) == ("n[1,3]", {"n2": "drain"}, 3)
    submitted = site.call("campaign", "submit", "validate", "--system", "sound", "--hosts", first["hostlist"])
    assert submitted.returncode == 0, submitted.stderr
    second = due(site, "--count", 2)
    assert second["hostlist"] == "n[4-5]"
    assert {second["left_out"][host].partition(" a ")[0] for host in ("n1", "n3")} == {"has"}
