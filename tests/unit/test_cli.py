# SPDX-License-Identifier: Apache-2.0
"""The command line: help, exit statuses, one line of error, one JSON document, readers that go away."""

import argparse
import errno
import importlib.metadata
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import weakref
from pathlib import Path

import pytest

import documented
from factories.processes import captured
from firsttouch import cli, paths
from firsttouch.cli import options, run_command, run_dataset, run_program
from firsttouch.errors import CANNOT_HERE, MORE_THREADS, BadInput, CannotHere, Missing, RunFailed, os_reason
from firsttouch.genomics.aligners import aligner
from firsttouch.host import topology

FIRSTTOUCH = Path(sys.executable).with_name("firsttouch")
STORED = Path(__file__).parents[1] / "golden"
XML = str(STORED / "lstopo_synthetic.xml")


def parsers(parser: argparse.ArgumentParser):
    """Yields the parser of each command and of each of its actions."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                yield sub
                yield from parsers(sub)


PARSERS = {p.prog.removeprefix("firsttouch "): p for p in parsers(cli.parser())}


@pytest.mark.parametrize("command", PARSERS)
def test_help_has_examples_that_can_be_parsed(run_cli, command):
    _, out, _ = run_cli(*command.split(), "--help")
    examples = re.sub(r" \\\n +", " ", out.split("examples:\n")[1])
    lines = [li.strip() for li in examples.splitlines() if li.startswith("  firsttouch ")]
    assert lines
    for line in lines:
        words = shlex.split(line.split("     ")[0].split(" | ")[0].split(" # ")[0])
        assert f"{shlex.join(words)} ".startswith(f"firsttouch {command} ")
        cli.parser(words[1:2]).parse_args(words[1:])


@pytest.mark.parametrize("columns", [80, 100, 132])
def test_help_is_not_wider_than_the_terminal(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    top = cli.parser()
    shown = [top.format_help(), top.format_all(), *(parser.format_help() for parser in PARSERS.values())]
    assert [line for text in shown for line in text.splitlines() if len(line) > columns] == []


def test_wrapped_help_has_every_word_of_its_examples_and_comments(monkeypatch):
    example = "  do 'a b' --long-option value > out    why it is done"
    parser = cli.Parser(prog="do", epilog=f"Prose that goes on.\nAnd on.\n\nexamples:\n{example}\n  do x")
    monkeypatch.setenv("COLUMNS", "32")
    assert parser.format_help().endswith(
        "Prose that goes on. And on.\n\nexamples:\n  do 'a b' --long-option \\\n      value > out\n"
        "          why it is done\n  do x\n"
    )
    monkeypatch.setenv("COLUMNS", "80")
    assert parser.format_help().endswith(f"{example}\n  do x\n")


def test_every_argument_has_a_help_text_and_an_option_the_same_placeholder_everywhere():
    placeholders = {}
    for command, parser in PARSERS.items():
        for action in parser._actions:
            assert action.help or isinstance(action, argparse._SubParsersAction), (command, action.dest)
            if action.nargs != 0:
                shown = action.metavar or action.choices
                assert shown, (command, action.dest)
                # An output is a file or a folder; `measure` takes several numbers of threads.
                for option in set(action.option_strings) - {"-o", "--output", "--threads"}:
                    assert placeholders.setdefault(option, str(shown)) == str(shown), (command, option)
    assert placeholders["--system"] == "SYSTEM"


def test_words_behind_the_first_two_dashes_are_the_users_command():
    parser = cli.parser(["run"])
    args = parser.parse_args(["run", "--json", "--", "bwa", "mem", "--json", "--", "-"])
    assert (args.program, args.json) == (["bwa", "mem", "--json", "--", "-"], True)
    assert parser.parse_args(["run"]).program == []
    assert parser.parse_args(["run", "--"]).program == []


def test_the_users_command_is_not_assigned_to_an_optional_argument_before_it():
    parser = cli.Parser(prog="run")
    parser.add_argument("scenario", nargs="?", default="auto")
    options.add_user_command(parser, "the program")
    assert vars(parser.parse_args(["--", "bwa", "mem"])) == {"scenario": "auto", "program": ["bwa", "mem"]}
    given = parser.parse_args(["2x-bound", "--", "bwa"])
    assert (given.scenario, given.program) == ("2x-bound", ["bwa"])


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("run", "--verify", "sort", "a b"), "put -- before the program: -- sort 'a b' "),
        (("plna",), "^firsttouch: error: no command 'plna'; did you mean 'plan'\\? \\(help: firsttouch"),
        (("validate", "--sys", "x"), "unrecognized arguments: --sys; did you mean '--system'\\?"),
        (("run", "1x1-bound", "--aligner", "bwa", "--dataset", "lambda"), "did you mean 'bwa-aln', 'bwa-mem'"),
        (("topology", "--jsn"), "firsttouch topology: error: unrecognized arguments: --jsn; did you mean"),
        (("measure", "latncy"), "firsttouch measure: error: .*; did you mean 'latency'"),
        (("plan", "--aligner", "bwa-mem", "--policies", "orignal"), "no policy .*; did you mean 'original'"),
        (("topology", "--system", "amd-optron"), "no system .*; did you mean 'amd-opteron'"),
        (("data", "get", "lamda"), "no dataset .*; did you mean 'lambda'"),
    ],
)
def test_a_misspelling_is_answered_with_the_nearest_name_in_one_line(run_cli, argv, message):
    status, out, err = run_cli(*argv)
    assert (status, out) == (2, "")
    assert re.search(message, err)
    assert err.count("\n") == 1


def test_no_command_and_help(run_cli):
    status, out, err = run_cli()
    assert (status, out) == (2, "")
    _, whole, _ = run_cli("--help")
    assert err.startswith(whole)
    assert run_cli("help") == (0, whole, "")
    assert run_cli("help", "plan") == run_cli("plan", "--help")
    assert run_cli("help", "--all")[::2] == (0, "")
    assert run_cli("-V") == run_cli("--version")


def test_the_first_screen_has_the_usual_commands_and_help_all_the_others(run_cli):
    shown = {"--help": cli.TASKS, "help --all": {**cli.TASKS, **cli.MORE_TASKS}}
    for line, tasks in shown.items():
        status, out, err = run_cli(*line.split())
        assert (status, err) == (0, "")
        lines = out.split("\noptions:")[0].split(f"\n{next(iter(tasks))}:\n")[1].splitlines()
        listed = [li.split()[0] for li in lines if li.startswith("  ") and li[2] != " "]
        assert listed == [name for commands in tasks.values() for name in commands]
        assert [li[:-1] for li in lines if li.endswith(":")] == list(tasks)[1:]
        assert "3 if something needed is missing here, 4 for a suspect" in " ".join(out.split())
    assert sum(map(len, cli.TASKS.values())) == 16
    assert set(listed) == set(cli.COMMANDS)


@pytest.mark.parametrize(
    ("line", "runs"),
    [
        ("-- bwa mem -t 2 i r.fq", "run_command.run"),
        ("2x-bound -o o.sam -- /x/bwa mem", "run_command.run"),
        ("--json -- bwa index r.fa", "run_program.run"),
        ("--", "run_program.run"),
        ("1x-default --aligner snap -- -x", "run_dataset.run"),
        ("--check sum --repetitions 2", "run_program.run_check"),
        ("--threads 2 --timeout 9 --share-host --budget 0 -- bwa mem i r", "run_command.run"),
    ],
)
def test_what_stands_behind_the_dashes_decides_how_it_runs(run_cli, monkeypatch, line, runs):
    for module in (run_command, run_program, run_dataset):
        for name in {"run", "run_check"} & {*vars(module)}:
            what = f"{module.__name__.rpartition('.')[2]}.{name}"
            monkeypatch.setattr(module, name, lambda args, what=what: print(what) or 0)
    assert run_cli("run", *line.split()) == (0, f"{runs}\n", "")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--verify -- bwa mem i r", "--verify 'bwa'"),
        ("--records r -- bwa mem i r", "--records 'bwa'"),
        ("--budget 0 -- sort", "--budget 'sort'"),
        ("-o x -- sort", "--output 'sort'"),
        ("--index=i -- bwa mem", "--index 'bwa'"),
        ("--sort", "--sort aligners"),
        ("1x-default --aligner snap --on 0", "--on --aligner"),
        ("--check sum --scratch ram", "--scratch --check"),
        ("--check sum -- true", "--check program"),
        ("--aligner snap", "--aligner scenario"),
    ],
)
def test_an_option_that_does_not_fit_is_refused_with_what_it_is_for(run_cli, line, words):
    status, out, err = run_cli("run", *line.split())
    assert (status, out, err.count("\n")) == (2, "", 1)
    option, other = words.split()
    assert re.match(rf"firsttouch: error: {option} .*{other}", err), err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("pl", {"plan"}),
        ("campaign su", {"submit"}),
        ("topology --js", {"--json"}),
        ("plan --aligner bwa-m", {"bwa-mem", "bwa-mem2", "bwa-mem3"}),
        ("topology --xml lstopo_sy", {"lstopo_synthetic.xml"}),
    ],
)
def test_bash_completes_commands_options_names_and_files(tmp_path_factory, run_cli, line, words):
    file = tmp_path_factory.getbasetemp() / "completion.bash"
    if not file.exists():
        status, out, err = run_cli("--print-completion", "bash")
        assert (status, err) == (0, "")
        file.write_text(out)
    script = """source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"
        _shtab_firsttouch; printf '%s\\n' "${COMPREPLY[@]}" """
    done = captured(["bash", "-c", script, "bash", file, "firsttouch", *line.split()], cwd=STORED, timeout=60)
    assert set(done.stdout.split()) == words


@pytest.mark.parametrize("shell", ["zsh", "fish", "tcsh"])
def test_other_shells_have_completion_scripts(run_cli, shell):
    status, out, err = run_cli("--print-completion", shell)
    assert (status, err) == (0, "")
    assert set(cli.COMMANDS) <= set(re.findall(r"[\w-]+", out))


@pytest.mark.parametrize(
    ("command", "start"),
    [
        ("campaign list", "no campaign: `firsttouch campaign submit`"),
        ("advise --list", "no advice: `firsttouch advise -- PROGRAM`"),
    ],
)
def test_an_empty_list_is_one_line_that_says_how_to_get_an_entry(run_cli, monkeypatch, tmp_path, command, start):
    folders = [f"XDG_{name}_HOME" for name in ("CONFIG", "CACHE", "DATA", "STATE")]
    for name in ("FIRSTTOUCH_ADVICE", "FIRSTTOUCH_RESULTS", *folders):
        monkeypatch.setenv(name, str(tmp_path))
    status, out, err = run_cli(*command.split())
    assert (status, err, out.count("\n")) == (0, "", 1)
    assert out.startswith(start)


def test_version(run_cli):
    names = {"firsttouch": "firsttouch", "firsttouch-probe": "firsttouch-probe", "ReFrame": "ReFrame-HPC"}
    lines = [f"{name} {installed(package)}\n" for name, package in names.items()]
    assert run_cli("--version")[:2] == (0, "".join(lines))


def installed(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def test_times_and_parts_have_units_or_none():
    times = ("90", "0.3", "90s", "1.5min", "12h")
    assert [options.duration(text) for text in times] == [90, 0.3, 90, 90, 43_200]
    assert [options.part(text) for text in ("0.1", "10%", "1")] == [0.1, 0.1, 1]


@pytest.mark.parametrize(
    "argv",
    [
        ("topology", "--xml", "nothing.xml"),
        ("topology", "--xml", __file__),
        ("plan", "--aligner", "bwa-mem", "--xml", XML, "--threads", "65"),
        ("run", "--"),
        ("run", "1x-default", "--aligner", "bwa-mem", "--reads", "r", "--index", "i"),
        ("run", "1x-default", "--aligner", "bwa-mem", "--dataset", "lambda", "--reads", "r"),
        ("data", "index", "--aligner", "bwa-mem", "--dataset", "nothing"),
    ],
)
def test_bad_input_ends_with_2_and_one_line(run_cli, argv):
    status, out, err = run_cli(*argv)
    assert (status, out) == (2, "")
    assert err.startswith("firsttouch: error: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (BadInput("bad", file="f", line=3), 2, "firsttouch: error: f:3: bad"),
        (BadInput("bad", file="f"), 2, "firsttouch: error: f: bad"),
        (Missing("gone"), 3, "firsttouch: error: gone"),
        (CannotHere("not here"), 3, f"{CANNOT_HERE}not here"),
        (RunFailed("ended"), 1, "firsttouch: error: ended"),
        (BadInput("no 'a\nb\x1b[2J'"), 2, r"firsttouch: error: no 'a\nb\x1b[2J'"),
        (KeyboardInterrupt(), 130, "firsttouch: interrupted"),
        (
            PermissionError(13, "Permission denied", "/some/file"),
            2,
            "firsttouch: error: /some/file: Permission denied",
        ),
        (OSError(28, "No space left on device"), 2, "firsttouch: error: No space left on device"),
        (RuntimeError("can't start new thread"), 3, f"{CANNOT_HERE}can't start new thread: {MORE_THREADS}"),
        (
            MemoryError(),
            3,
            f"{CANNOT_HERE}out of memory: raise the limit of memory (ulimit -v) or take less input",
        ),
    ],
)
def test_how_errors_end(run_cli, monkeypatch, error, status, message):
    def fail(_):
        raise error

    monkeypatch.setattr(topology, "parse_xml", fail)
    monkeypatch.setattr("firsttouch.cli.topology.run", fail)
    assert run_cli("topology", "--xml", XML) == (status, "", message + "\n")


def test_a_report_without_room_for_its_packages_says_so(tmp_path):
    """The library of tables would end the process by a signal, or by an error within itself."""
    records = paths.ROOT / "docs/examples/vm.jsonl"
    script = f"ulimit -v 900000; {FIRSTTOUCH} report {records} -o {tmp_path / 'out'}"
    done = captured(["bash", "-c", script], timeout=60)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1), done
    assert (
        "need 2 GiB of address space, and the limit is 879 MiB: raise the limit of memory (ulimit -v)"
        in done.stderr
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_modules_load_is_not_lost(run_cli, monkeypatch, number):
    """Loading calls callbacks of weak references, in which Python drops exceptions."""

    def load(commands):
        class Referent:
            pass

        referent = Referent()
        reference = weakref.ref(referent, lambda _: signal.raise_signal(number))
        del referent
        assert reference() is None
        return make(commands)

    make = cli.parser
    monkeypatch.setattr(cli, "parser", load)
    assert run_cli("topology", "--xml", XML) == (128 + number, "", "firsttouch: interrupted\n")


def test_topology_as_text_and_json(run_cli):
    status, out, err = run_cli("topology", "--xml", XML)
    assert (status, err) == (0, "")
    assert "data may lie there" in out
    status, out, _ = run_cli("topology", "--xml", XML, "--json")
    document = json.loads(out)
    assert [n["index"] for n in document["numa_nodes"]] == list(range(8))


def test_a_topology_is_compared_with_a_system(run_cli):
    status, out, err = run_cli("topology", "--xml", XML, "--system", "intel-xeon")
    assert (status, err) == (1, "firsttouch: error: this host has 8 NUMA nodes, intel-xeon has 4\n")
    assert "data may lie there" in out
    assert run_cli("topology", "--xml", XML, "--system", "none")[0] == 2


def test_plan_as_text_and_json(run_cli):
    argv = ("plan", "--aligner", "bwa-mem", "--xml", XML, "--index-size", "0.5 GiB")
    status, out, err = run_cli(*argv)
    assert (status, err) == (0, "")
    assert "cannot be run: 16x4-bound, 16x4-local, 16x4-interleave: instance 0 needs" in " ".join(out.split())
    text = out
    status, out, _ = run_cli(*argv, "--json")
    assert status == 0
    document = json.loads(out)
    names = {s["name"] for s in document["scenarios"]}
    assert {"1x64-default", "8x8-interleave"} <= names
    assert names.isdisjoint(s["name"] for s in document["infeasible"])
    for scenario in document["scenarios"]:
        assert len(scenario["placements"]) == scenario["instances"]
        assert scenario["name"] in text
        status, out, err = run_cli(*argv, scenario["name"])
        assert (status, err) == (0, "")
        title, *commands = out.splitlines()
        assert title.startswith(f"# {scenario['name']}: {scenario['instances']} x ")
        numactl = [["numactl", *p["numactl"], "--"] if p["numactl"] else [] for p in scenario["placements"]]
        assert list(map(shlex.split, commands)) == [[*words, "PROGRAM"] for words in numactl]
        assert json.loads(run_cli(*argv, scenario["name"].upper(), "--json")[1]) == scenario


@pytest.mark.parametrize("command", [f"plan --aligner bwa-mem --json --xml {XML}", "--help", "run --help"])
def test_a_reader_that_goes_away(command):
    script = f"set -o pipefail; {FIRSTTOUCH} {command} | true; echo status ${{PIPESTATUS[0]}}"
    done = captured(["bash", "-c", script], timeout=60)
    assert done.stderr == ""
    # The reader may have been slow to go.
    assert done.stdout in {"status 141\n", "status 0\n"}


def test_a_closed_output():
    done = captured(["bash", "-c", f"{FIRSTTOUCH} plan --aligner bwa-mem --xml {XML} > /dev/full"], timeout=60)
    assert (done.returncode, done.stderr) == (2, "firsttouch: error: No space left on device\n")


@pytest.mark.parametrize("words", ["topology --json", "--version"])
def test_output_to_a_closed_stream_is_an_error(words):
    done = captured(["bash", "-c", f"{FIRSTTOUCH} {words} >&-"], timeout=60)
    assert (done.returncode, done.stderr) == (2, "firsttouch: error: standard output: Bad file descriptor\n")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_log_on_a_full_disk_does_not_stop_a_program(monkeypatch, unbuffered):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    script = f"{FIRSTTOUCH} run 1x-default -- echo done 2>/dev/full"
    done = captured(["bash", "-c", script], timeout=60)
    assert (done.returncode, done.stdout) == (0, "done\n")
    done = subprocess.run(["bash", "-c", f"{FIRSTTOUCH} run 2x-bound -- true 2>/dev/full"], check=False)
    assert done.returncode == 2


def test_programs_inherit_the_streams_that_were_closed():
    """Otherwise a file that a program opens becomes its standard error, and its output would be lost unseen."""
    script = f"{FIRSTTOUCH} run 1x-default -- sh -c 'ls -l /proc/$$/fd >&9' 9>&1 >&- 2>&-"
    done = captured(["bash", "-c", script], timeout=60)
    assert " 2 -> /dev/null\n" in done.stdout
    assert done.stderr == ""
    for words in ("echo lost >&-", "cat <&-", "cat >&- <&-"):
        output = ["bash", "-c", f"{FIRSTTOUCH} run --share-host 1x-default -- {words}"]
        done = subprocess.run(output, capture_output=True, timeout=60, check=False)
        assert done.returncode == 1, words
        assert b"Bad file descriptor" in done.stderr, words


@pytest.mark.parametrize("command", ["advise", "run 1x-default -o x.sam"])
def test_no_thread_is_started_that_has_nothing_to_do(tmp_path, command):
    """numpy would start a thread per PU next to programs that are placed and measured."""
    (tmp_path / "r.fq").write_text("@a\nACGT\n+\nIIII\n")
    for file in aligner("bwa-mem").index_paths(tmp_path / "i"):
        file.touch()
    script = """if True:
        import os, sys
        from firsttouch import cli
        before = dict(os.environ)
        cli.main((sys.argv[1] + " --aligner bwa-mem --reads r.fq --index i").split())
        print("numpy" in sys.modules, len(os.listdir("/proc/self/task")), os.environ == before)
        """
    done = captured([sys.executable, "-c", script, command], cwd=tmp_path, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "True 1 True"


@pytest.mark.parametrize(
    "argv",
    [
        ("--help",),
        ("topology", "--xml", XML, "--json"),
        ("plan", "--aligner", "bwa-mem", "--xml", XML, "--json"),
        ("run", "--", "sleep", "0.2"),  # long enough to be sampled
    ],
)
def test_commands_that_start_quickly_load_no_heavy_library(argv):
    script = """if True:
        import sys
        from firsttouch import cli
        try:
            cli.main(sys.argv[1:])
        finally:
            print(*{m.split(".")[0] for m in sys.modules}, file=sys.stderr)
        """
    done = captured([sys.executable, "-c", script, *argv], timeout=60, check=True)
    loaded = set(done.stderr.split())
    assert "firsttouch" in loaded
    heavy = {"ClusterShell", "archspec", "jinja2", "numpy", "polars", "reframe", "requests"}
    assert loaded & {*heavy, "urllib3", "yaml"} == set()
    assert "tomllib" not in loaded or "plan" in argv  # for the aligner


def test_measurements_and_campaigns_do_without_reframe():
    script = """if True:
        import importlib, sys
        importlib.import_module("firsttouch.cli.measure")  # hosts start it once for each step
        assert {"numpy", "ClusterShell"}.isdisjoint(sys.modules)
        for module in ("cli.campaign", "cli.measure", "cli.run_dataset", "campaign.run"):
            importlib.import_module(f"firsttouch.{module}")
            assert "reframe" not in sys.modules, module
        """
    subprocess.run([sys.executable, "-c", script], timeout=60, check=True)


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_a_command_has_the_summary_that_help_shows_without_loading_it(command):
    described = cli.parser([command])._subparsers._group_actions[0]._choices_actions
    assert [(action.dest, action.help) for action in described] == [(command, cli.COMMANDS[command])]


def test_a_signal_after_a_lost_one_interrupts():
    received = []
    with cli._signals(received):
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGTERM)
    assert received == [signal.SIGTERM] * 2


@pytest.mark.parametrize("ignored", [signal.SIGCHLD, signal.SIGHUP])
def test_signals_that_the_parent_ignores(ignored):
    """Ends of children are needed; what nohup ignores stays ignored."""
    program = "import signal; print([signal.getsignal(n).name for n in (signal.SIGCHLD, signal.SIGHUP)])"
    script = (
        "import signal, subprocess, sys; from firsttouch import cli\n"
        f"cli._run = lambda given: subprocess.run([sys.executable, '-c', {program!r}]).returncode\n"
        f"signal.signal({int(ignored)}, signal.SIG_IGN); sys.exit(cli.main([]))"
    )
    done = captured([sys.executable, "-c", script], timeout=60)
    hangup = "SIG_IGN" if ignored == signal.SIGHUP else "SIG_DFL"
    assert (done.returncode, done.stdout) == (0, f"['SIG_DFL', '{hangup}']\n"), done


LEAVES = dict(documented.actions(cli.parser()))


@pytest.mark.parametrize("name", LEAVES)
def test_every_command_and_action_has_json(name):
    assert "--json" in LEAVES[name]._option_string_actions


def test_a_limit_of_the_user_is_named_with_what_raises_it():
    error = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    assert os_reason(error) == "Too many open files: raise the limit of open files (ulimit -n)"
    assert os_reason(OSError(errno.ENOENT, "No such file")) == "No such file"
