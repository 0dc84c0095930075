# SPDX-License-Identifier: Apache-2.0
"""Draining: one host at a time, and nothing but hosts, whatever the records call them."""

import pytest

from firsttouch.errors import BadInput
from firsttouch.fleet import exclusion
from firsttouch.judge.verdict import Finding, HostVerdict
from firsttouch.records.cases import Case

#: A Slurm of n1 and n2, in which every `scontrol update` is a line of the file "updates".
SCONTROL = """
case "$*" in
  *"show node n1"|*"show node n2") echo "NodeName=$4 State=${{STATE:-IDLE}} Reason=${{REASON:-}}";;
  *"show node "*) echo "Node $4 not found" >&2; exit 1;;
  *"show reservation burnin") echo "ReservationName=burnin StartTime=now Nodes=n1 State=ACTIVE";;
  update*) {update} echo "$*" >>{updates};;
  *) exit 1;;
esac"""


@pytest.fixture
def updates(tmp_path, stand_in):
    """Stands in for Slurm, and returns a function with all its updates so far."""
    file = tmp_path / "updates"
    stand_in("scontrol", SCONTROL.format(update="", updates=file))
    return lambda: file.read_text().splitlines() if file.exists() else []


def failed(host, word="fail"):
    case = Case("s", "latency", "random_latency", {"bank": 0}, "ns", "lower")
    finding = Finding(case, (120.0,), None, word, "120 ns, 100 expected")
    return HostVerdict(host, "s", (finding,), 0, ())


@pytest.mark.parametrize(
    "name", ["ALL", "all", "n[1-1000]", "n1,n2", "n1 n2", "-h", "", "n1\n", "n1;id", "$(id)", "n\xfc"]
)
@pytest.mark.parametrize("dry_run", [True, False])
def test_what_is_not_the_name_of_one_host_never_reaches_slurm(updates, name, dry_run):
    with pytest.raises(BadInput, match="not the name of one host"):
        exclusion.drain_host(failed(name), "c-1", dry_run=dry_run)
    assert updates() == []


def test_a_host_that_slurm_does_not_know_does_not_keep_others_in_service(updates):
    lines = list(exclusion.drain_hosts([failed(h) for h in ("ALL", "n9", "n1", "n2")], "c-1", dry_run=False))
    assert [status for _, status in lines] == [2, 1, 0, 0]
    assert "n9 is not drained: scontrol show node n9: Node n9 not found" in lines[1][0]
    assert [u.split(" reason=")[0] for u in updates()] == [
        f"update nodename={host} state=drain" for host in ("n1", "n2")
    ]


def test_a_host_in_the_reservation_that_is_named_is_nobody_elses(updates, monkeypatch):
    monkeypatch.setenv("STATE", "IDLE+MAINT+RESERVED")
    assert "left alone" in exclusion.drain_host(failed("n1"), "c-1", dry_run=False)
    assert "left alone" in exclusion.drain_host(failed("n2"), "c-1", dry_run=False, reservation="burnin")
    assert updates() == []
    assert "n1 is drained" in exclusion.drain_host(failed("n1"), "c-1", dry_run=False, reservation="burnin")
    monkeypatch.setenv("STATE", "IDLE+MAINTENANCE")
    assert "left alone" in exclusion.drain_host(failed("n1"), "c-1", dry_run=False)
    monkeypatch.setenv("STATE", "IDLE+DRAIN+RESERVED")
    assert "left alone" in exclusion.drain_host(failed("n1"), "c-1", dry_run=False, reservation="burnin")


def test_who_may_not_drain_is_told_so(tmp_path, stand_in):
    refusal = "echo slurm_update error: Invalid user id >&2; exit 1;"
    stand_in("scontrol", SCONTROL.format(update=refusal, updates=tmp_path / "updates"))
    ((line, status),) = exclusion.drain_hosts([failed("n1")], "c-1", dry_run=False)
    assert (status, "only an administrator of Slurm may drain a host" in line) == (1, True)
