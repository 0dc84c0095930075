# SPDX-License-Identifier: Apache-2.0
"""The hosts to avoid, and draining: one host at a time, and nothing but hosts, whatever records call them."""

import json

import pytest

import documented
from factories.stores import log_verdict
from firsttouch.errors import BadInput
from firsttouch.fleet import actions, exclusion, site_settings
from firsttouch.fleet.actions import Actions
from firsttouch.judge.verdict import Finding, HostVerdict
from firsttouch.records.cases import Case


@pytest.fixture
def site(tmp_path, own_folders, stand_in):
    """A site without Slurm; its function logs a verdict of a host."""
    stand_in("sinfo", "for host in n1 n2 n3 n7 n10 cn07; do echo $host idle; done")
    (tmp_path / "site").mkdir()

    def verdict(host, *fields, reason="", **more):
        log_verdict(tmp_path / "out", host, *fields, reason=reason or f"copy of {host}", **more)

    return verdict


def listed():
    avoided = exclusion.exclusions(Actions(), site_settings.load())
    return {excluded.host: excluded.why for excluded in avoided.hosts}


def settings(tmp_path, text):
    (tmp_path / "site" / "fleet.yaml").write_text(text)
    return site_settings.load()


def test_the_last_verdict_that_decides_counts(site):
    for host, words in {
        "n1": ["fail", "pass"],
        "n2": ["pass", "fail", "undecided", "invalid"],
        "n3": ["pass", "suspect"],
        "n10": ["fail"],
        "n4": ["undecided"],
    }.items():
        for age, word in zip(range(len(words), 0, -1), words, strict=True):
            site(host, word, age=60.0 * age)
    assert listed() == {"n2": "fail", "n3": "suspect", "n10": "fail"}


def test_old_verdicts_and_other_words_list_no_host(site, tmp_path):
    site("n1", "fail", age=40 * 86400)
    site("n2", "fail", age=20 * 86400)
    site("n3", "suspect")
    assert listed() == {"n2": "fail", "n3": "suspect"}
    settings(tmp_path, "exclude: {max_age: 10d, verdicts: [fail]}\n")
    assert listed() == {}


def test_hosts_that_are_held_or_drained_are_listed_and_released_ones_are_not(site):
    for host in ("n1", "n2", "n3"):
        site(host, "fail")
    actions.folder().mkdir(parents=True)
    journal = Actions()
    journal.end(journal.begin("hold", "n1", reason="copy", system="s"))
    journal.end(journal.begin("hold", "n2", system="s"))
    journal.end(journal.begin("release", "n2", hand=True))
    journal.end(journal.begin("drain", "n3", reason="copy"))
    assert listed() == {"n1": "held", "n3": "drained"}


def test_the_manual_shows_what_is_printed(site, run_cli):
    bank, link = "memory of bank 1: bandwidth 25.0 %", "link from NUMA 0 to bank 3: latency 4.1 %"
    site("n3", "fail", 0.4 * 86400, "amd-opteron", reason=f"{bank} worse than its siblings")
    site("n7", "suspect", 6.2 * 86400, "amd-opteron", reason=f"{link} worse than its siblings")
    shown = [c for c in documented.commands(documented.ROOT / "docs" / "howto" / "fleet.md") if c.output]
    assert len(shown) == 2
    for command in shown:
        assert command.unprinted(run_cli(*command.text.split()[1:]).out) == []


def test_the_command_prints_what_sbatch_takes_and_why(site, run_cli):
    site("n1", "fail")
    site("n2", "suspect")
    site("n10", "fail", system="other")
    assert run_cli("fleet", "exclude").out == "n[1-2,10]\n"
    assert run_cli("fleet", "exclude", "--system", "other").out == "n10\n"
    assert run_cli("fleet", "exclude", "--system", "local").out == "\n"
    refused = run_cli("fleet", "exclude", "--system", "othr")
    assert (refused.status, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert "no system 'othr'" in refused.err
    assert "did you mean 'other'?" in refused.err
    assert "copy of n2" in run_cli("fleet", "exclude", "--why").out
    document = json.loads(run_cli("fleet", "exclude", "--json").out)
    assert document["hostlist"] == "n[1-2,10]"
    assert [host["why"] for host in document["hosts"]] == ["fail", "suspect", "fail"]
    site("n1", "pass", age=0)
    site("n99", "fail")  # removed from the cluster: sbatch would refuse the list
    assert run_cli("fleet", "exclude").out == "n[2,10]\n"


def test_without_verdicts_nothing_is_claimed(site, run_cli):
    refused = run_cli("fleet", "exclude")
    assert (refused.status, refused.out) == (2, "")
    assert "no verdict is logged" in refused.err


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
