# SPDX-License-Identifier: Apache-2.0
"""Following ReFrame: a stand-in prints ReFrame's output and may write its report."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from factories import topologies
from factories.processes import wait_until, write_program
from firsttouch import paths
from firsttouch.benchmarks import reframe_run
from firsttouch.benchmarks.reframe_run import Trouble
from firsttouch.cli import characterize
from firsttouch.datasets import fetch
from firsttouch.errors import BadInput, RunFailed
from firsttouch.execution import progress
from firsttouch.host import topology
from firsttouch.records import schema
from firsttouch.records.schema import Record

LOG = """\
[ RUN      ] latency %pu_node=0 /1a2b3c4d @local:default+builtin
[       OK ] (1/3) latency %pu_node=0 /1a2b3c4d @local:default+builtin
[     FAIL ] (2/3) placement %scenario=2x32-bound /00ff00ff @local:default+builtin
==> test failed during 'sanity': test staged in '/somewhere'
[     SKIP ] (3/4) scaling %scenario=1x64-default /12345678 @local:default+builtin [not here]
[     SKIP ] (4/4) counters /12345679 @local:default+builtin [dependencies failed]
"""


def case(name, result, **reasons):
    return {"display_name": name, "result": result, **reasons}


def report(*cases):
    return json.dumps({"runs": [{"testcases": list(cases)}]})


@pytest.fixture
def stub_reframe(tmp_path, monkeypatch):
    """Return a function that runs a shell script in place of ReFrame; $report is the path of its report."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    messages = []

    def run(script, out=tmp_path / "out"):
        find = 'while [ $# -gt 0 ]; do [ "$1" = --report-file ] && report=$2; [ "$1" = --stage ] && stage=$2; '
        find += "shift; done\n"
        write_program(folder / "reframe", f'echo "$@" > {tmp_path / "argv"}\n{find}{script}')
        troubles, run.warnings = reframe_run.run(
            Path("checks"), "local", out, options=["-n", "x"], say=messages.append
        )
        return troubles, messages

    return run


def test_troubles_and_progress(stub_reframe, tmp_path):
    text = report(
        case("latency %pu_node=0", "pass"),
        case("placement %scenario=2x32-bound", "fail", fail_reason="sanity error: exit status 7: no reason"),
        case("scaling %scenario=1x64-default", "skip", fail_reason=None),
        case("counters", "fail_deps", fail_reason=None),
        case("contention", "skip", fail_reason=None),
        case("bandwidth", "xpass", fail_reason="better than it may be"),
        case("topology", "xfail"),
        case("one", "abort"),
    )
    (tmp_path / "report").write_text(text)
    (tmp_path / "log").write_text(LOG)
    troubles, messages = stub_reframe(f"cat {tmp_path / 'log'}; cp {tmp_path / 'report'} $report; exit 1")
    assert troubles == [
        Trouble("placement %scenario=2x32-bound", "failed", "exit status 7: no reason"),
        Trouble("scaling %scenario=1x64-default", "skipped", "not here"),
        Trouble("counters", "skipped", "dependencies failed"),
        Trouble("contention", "skipped", "no reason given"),
        Trouble("bandwidth", "failed", "better than it may be"),
        Trouble("one", "failed", "no reason given"),
    ]
    assert [s.split(" [")[0] for s in messages] == ["  (2/3) fail: placement %scenario=2x32-bound"]
    argv = (tmp_path / "argv").read_text()
    assert argv.startswith("-c checks -r --system local --exec-policy serial")
    assert argv.endswith("-n x\n")


def test_a_run_names_what_fails_and_repeats_warnings(stub_reframe, tmp_path):
    names = ["latency %bank=0", "locks", "latency %bank=1", "tails"]
    with (tmp_path / "log").open("w") as log:
        for n, name in enumerate(names, 1):
            word = "FAIL" if name == "tails" else "  OK"
            log.write(f"[ RUN      ] {name} /1a2b3c4d @l:d\n[     {word} ] ({n}/4) {name} /1a2b3c4d @l:d\n")
    (tmp_path / "report").write_text(report(case("tails", "fail", fail_reason="x")))
    warning = "firsttouch: 2 of 3 values spread: this host was not idle"
    troubles, messages = stub_reframe(
        f"cat {tmp_path / 'log'}; echo '209 ns' >>$FIRSTTOUCH_PROGRESS; cp {tmp_path / 'report'} $report; "
        f"echo '{warning}' >>$FIRSTTOUCH_PROGRESS",
    )
    assert [t.check for t in troubles] == ["tails"]
    assert [m.split(" [")[0] for m in messages] == ["  (4/4) fail: tails"]
    assert [*stub_reframe.warnings] == ["this host was not idle"]


@pytest.mark.parametrize("folder", ["/checks", None])
def test_the_log_that_reframe_opens_first_is_removed(stub_reframe, tmp_path, monkeypatch, folder):
    monkeypatch.delenv("TMPDIR", raising=False)
    if folder:
        monkeypatch.setenv("TMPDIR", folder)
    (tmp_path / "report").write_text(report())
    variables = tmp_path / "said"
    script = (
        f'echo "$TMPDIR $FIRSTTOUCH_TMPDIR" >{variables}; touch $TMPDIR/rfm-x.log; cp {tmp_path}/report $report'
    )
    stub_reframe(script)
    started, _, checks = variables.read_text().rstrip("\n").partition(" ")
    assert checks == (folder or "")
    assert not list(tmp_path.rglob("rfm-*"))
    # The checks have the TMPDIR that the command had.
    monkeypatch.setenv("TMPDIR", started)
    monkeypatch.setenv(reframe_run.TMPDIR, checks)
    from firsttouch.benchmarks import reframe_config  # noqa: PLC0415 - it imports ReFrame, which takes long

    reframe_config.site_configuration(paths.SETTINGS)
    assert os.environ.get("TMPDIR") == folder
    assert reframe_run.TMPDIR not in os.environ


def test_a_folder_with_a_blank_is_no_stage(stub_reframe, tmp_path, monkeypatch):
    (tmp_path / "a blank").mkdir()
    text = report(case("a", "fail", fail_reason="x"))
    script = f"mkdir -p $stage/a; touch $stage/a/rfm_job.out; echo '{text}' > \"$report\""
    stub_reframe(script, out=tmp_path / "a blank" / "out")
    assert (tmp_path / "a blank/out/stage/a/rfm_job.out").exists()
    assert "a blank/out/stage" not in (tmp_path / "argv").read_text()


def test_no_trouble(stub_reframe):
    assert stub_reframe("echo '" + report(case("a", "pass")) + "' > $report")[0] == []
    assert stub_reframe("echo '{\"runs\": []}' > $report")[0] == []


@pytest.mark.parametrize(
    "script",
    [
        *("exit 0", "exit 1", "kill -9 $$", "echo > $report", "echo '{\"runs\": [' > $report"),
        *("echo '[]' > $report", "echo 3 > $report", "echo '{}' > $report", "echo '{\"runs\": 3}' > $report"),
        *("echo '{\"runs\": [{}]}' > $report", "echo '{\"runs\": [3]}' > $report"),
        'echo \'{"runs": [{"testcases": [{}]}]}\' > $report',
        *('echo \'{"runs": [{"testcases": [{"result": "fail"}]}]}\' > $report', "printf '\\377' > $report"),
    ],
)
def test_a_reframe_without_a_report_failed(stub_reframe, script):
    with pytest.raises(RunFailed, match=r"status -?\d+ .*the last words"):
        stub_reframe(f"echo one; echo the last words; {script}")


FOLLOWER = """\
import sys
from pathlib import Path
from firsttouch import cli; from firsttouch.benchmarks import reframe_run
sys.executable = sys.argv[1]
try:
    with cli._signals([]):
        reframe_run.run(Path("checks"), "local", Path(sys.argv[2]), options=[], say=print)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_reaches_reframe(tmp_path, number):
    file = tmp_path / "reframe"
    write_program(
        file,
        f"trap 'echo interrupted > {tmp_path / 'seen'}; exit 1' INT\ntouch {tmp_path / 'up'}\n"
        "while :; do sleep 0.05; done",
    )
    argv = [sys.executable, "-c", FOLLOWER, str(tmp_path / "python"), str(tmp_path / "out")]
    with subprocess.Popen(argv) as process:
        wait_until((tmp_path / "up").exists, "ReFrame")
        process.send_signal(number)
        assert process.wait(120) == 130
    assert (tmp_path / "seen").read_text() == "interrupted\n"


def test_messages_go_to_who_follows(tmp_path, monkeypatch, capsys):
    file = tmp_path / "progress"
    monkeypatch.setenv(progress.FOLLOWER, str(file))
    progress.say("one")
    progress.say("two")
    assert file.read_text() == "one\ntwo\n"
    monkeypatch.setenv(progress.FOLLOWER, str(tmp_path / "no" / "folder"))
    progress.say("three")
    monkeypatch.delenv(progress.FOLLOWER)
    progress.say("four")
    assert capsys.readouterr() == ("", "one\ntwo\nthree\nfour\n")
    assert [f.name for f in tmp_path.iterdir()] == ["progress"]


def test_a_host_of_another_system_is_refused_before_any_work(monkeypatch):
    host = topology.parse_xml(topologies.made_up("partial-cpuset"))
    monkeypatch.setattr(topology, "read_host", lambda: host)
    monkeypatch.setattr(fetch, "get", lambda name: pytest.fail(f"{name} is fetched"))
    with pytest.raises(BadInput, match=r"intel-xeon\.yaml: .*\d+ NUMA nodes, .* 4$"):
        characterize.prepare("intel-xeon", "lambda")


#: Run reports that are damaged, as text.
DAMAGED = {
    "no checks": '{"session_info": {}, "runs": [{}]}',
    "a session is a number": '{"session_info": {}, "runs": [3]}',
    "a check is a text": '{"session_info": {}, "runs": [{"testcases": ["x"]}]}',
    "a check is a list": '{"session_info": {}, "runs": [{"testcases": [[]]}]}',
}
#: Run reports whose folders of results cannot be, as text.
WITHOUT_RESULTS = {
    "a folder whose name is too long": '{"session_info": {}, "runs": [{"testcases": [{"result": "pass", '
    f'"display_name": "x", "outputdir": "{"x" * 5000}"}}]}}]}}',
    "a folder that is a number of 400 digits": '{"session_info": {}, "runs": [{"testcases": [{"result": "pass", '
    f'"display_name": "x", "stagedir": {"9" * 400}}}]}}]}}',
}


@pytest.mark.parametrize(
    ("text", "by_name"),
    [
        *((text, by_name) for text in DAMAGED.values() for by_name in (True, False)),
        # The results of a report that is not named are not looked for.
        *((text, True) for text in WITHOUT_RESULTS.values()),
    ],
)
def test_a_damaged_run_report_is_left_out_and_named(tmp_path, run_cli, text, by_name):
    folder = tmp_path / "results"
    folder.mkdir()
    file = folder / "run-report.json"
    file.write_text(text)
    schema.append(folder / "records.jsonl", [Record("topology", "pus", "1", "higher", (3,), host="n1")])
    given = [file, folder / "records.jsonl"] if by_name else [folder]
    done = run_cli("validate", "--system", "local", *given)
    assert f"{file}: not a run report of ReFrame: " in done.err
    assert done.status == 2
    assert "verdict n1 " in done.out
