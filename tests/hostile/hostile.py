"""The harness for hostile input: it runs and checks all cases of a table in the same way.

To add a kind of input, write tests/hostile/test_hostile_<kind>.py:

    import pytest

    from hostile import Case

    CASES = [
        Case("no such file", ["report", "nowhere", "-o", "out"], 2, "no such file"),
        Case("not JSON", ["report", "r.jsonl", "-o", "out"], 2, "r.jsonl:1: not JSON", {"r.jsonl": "{\\n"}),
    ]

    @pytest.mark.parametrize("case", CASES, ids=str)
    def test_hostile_kind(case, hostile):
        hostile(case)

The marker `hostile` is set for all tests of this folder. Each case has its own folder, which is the working
directory and holds the input; HOME, TMPDIR, FIRSTTOUCH_OUT, FIRSTTOUCH_DATA and FIRSTTOUCH_SYSTEMS are empty
folders next to it. `firsttouch.cli.main` runs in this process, which costs milliseconds; ``process=True`` starts
`python -m firsttouch` for cases that need a process: signals, closed descriptors, other users.

The harness checks for each case: the exact exit status; no traceback; one line with the error at the end of
standard error for status 2 (for other statuses: at most one); the pattern; no control character in the output;
unchanged input; no new file except those that the case names; no process left; the time limit.
"""

import contextlib
import fnmatch
import hashlib
import io
import os
import re
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from factories.processes import status_of

#: Time limit of a case in seconds. It leaves room for a busy host, because a case that hangs never ends.
LIMIT = 120
ROOT = Path(__file__).resolve().parents[2]
VM = ROOT / "docs" / "examples" / "vm.jsonl"
#: Environment variable -> folder next to the case's.
FOLDERS = {
    "HOME": "home",
    "TMPDIR": "tmp",
    "FIRSTTOUCH_OUT": "results",
    "FIRSTTOUCH_DATA": "data",
    "FIRSTTOUCH_SYSTEMS": "systems",
}
_ERROR = re.compile(r"firsttouch(?:(?: [a-z]+)*: error|: cannot be done here): .+")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


@dataclass(frozen=True)
class Case:
    """One hostile input, the command that gets it, and the expected result.

    *make* makes the input: a mapping of file name -> content (text or bytes), or a function that gets the folder.
    *argv* are the arguments without the program's name. *says* is a regular expression that the messages or the
    output must match, or several: many inputs in one case cost one run. *leaves* are patterns of new files
    (`out/*`, relative to the case's folder; `../tmp/*` for files next to it), *changes* of files that may change.
    *environment* is set on top of the isolated one; None unsets a variable. *encoding* is the one of both output
    streams, as PYTHONIOENCODING names it.

    *opened* are files that a shell would open, such as ``<r.fq >>log 9<>x``, in this process.

    With *process*, the program is a new process: *prefix* is put before its argv (``sh -c 'exec "$@" >&-'
    sh`` closes a descriptor), *stdin* is written to it, and *during* is called with the started Popen and the
    folder, to send signals. A negative *status* is the signal that ended it.
    """

    name: str
    argv: Sequence[str]
    status: int
    says: str | Sequence[str] = ""
    make: Mapping[str, str | bytes] | Callable[[Path], object] = field(default_factory=dict)
    leaves: Sequence[str] = ()
    changes: Sequence[str] = ()
    environment: Mapping[str, str | None] = field(default_factory=dict)
    process: bool = False
    prefix: Sequence[str] = ()
    stdin: bytes = b""
    during: Callable[[subprocess.Popen, Path], object] | None = None
    encoding: str = "utf-8"
    opened: str = ""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Outcome:
    """The result of a case: exit status, standard output and standard error."""

    status: int
    out: str
    err: str


def check(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture) -> Outcome:
    """Run *case* below *tmp_path*, check the result, and return it for further checks."""
    folder = tmp_path / "case"
    folder.mkdir()
    for variable, name in FOLDERS.items():
        (tmp_path / name).mkdir()
        monkeypatch.setenv(variable, str(tmp_path / name))
    kept = {*FOLDERS, "FIRSTTOUCH_LOCK"}
    for variable in [v for v in os.environ if v.startswith(("FIRSTTOUCH_", "SLURM_")) and v not in kept]:
        monkeypatch.delenv(variable)
    for variable, value in case.environment.items():
        if value is None:
            monkeypatch.delenv(variable, raising=False)
        else:
            monkeypatch.setenv(variable, value)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.chdir(folder)
    _make(case, folder)
    before, children = _snapshot(tmp_path), _children()
    outcome = _start(case, folder) if case.process else _call(case, capfd)
    _check_words(case, outcome)
    _check_files(case, before, _snapshot(tmp_path))
    assert _children() <= children, "the case left a process"
    return outcome


def _make(case: Case, folder: Path) -> None:
    if callable(case.make):
        case.make(folder)
        return
    for name, content in case.make.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)


def _call(case: Case, capfd: pytest.CaptureFixture) -> Outcome:
    """Run the command in this process; it may raise no exception except argparse's SystemExit."""
    _clear_caches()
    encoding, _, errors = case.encoding.partition(":")
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors=errors or "strict")
    err = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="backslashreplace")
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    capfd.readouterr()
    with _opened(case.opened), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = status_of(case.argv)
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
    started = capfd.readouterr()  # the output of processes that it started
    texts = []
    for stream, more in ((out, started.out), (err, started.err)):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode(encoding) + more)
    return Outcome(status, *texts)


_MODES = {"<": os.O_RDONLY, "<>": os.O_RDWR, ">>": os.O_WRONLY | os.O_APPEND}


@contextlib.contextmanager
def _opened(redirections: str) -> Iterator[None]:
    """Open files at descriptors, as a shell does before it starts a program."""
    with contextlib.ExitStack() as stack:
        for number, mode, name in re.findall(r"(\d*)(<>|<|>>)(\S+)", redirections):
            descriptor = int(number or mode != "<")
            if descriptor > 1:
                assert not Path(f"/proc/self/fd/{descriptor}").exists(), "this process uses it"
                stack.callback(os.close, descriptor)
            else:
                kept = os.dup(descriptor)
                stack.callback(os.close, kept)
                stack.callback(os.dup2, kept, descriptor)
            file = os.open(name, _MODES[mode])
            os.dup2(file, descriptor)
            os.close(file)
        yield


def _start(case: Case, folder: Path) -> Outcome:
    """Run the command as a process in a new session; none of the session's processes may outlive it."""
    process = subprocess.Popen(
        [*case.prefix, sys.executable, "-m", "firsttouch", *case.argv],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        if case.during is not None:
            case.during(process, folder)
        out, err = process.communicate(case.stdin, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        pytest.fail(f"still running after {LIMIT} s")
    finally:
        left = _session(process.pid)
        deadline = time.monotonic() + LIMIT  # processes may need a moment to end
        while process.poll() is not None and left and time.monotonic() < deadline:
            time.sleep(0.02)
            left = _session(process.pid)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
    assert not left, f"the case left the processes {left}"
    return Outcome(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))


def _check_words(case: Case, outcome: Outcome) -> None:
    shown = f"{outcome.status}\n{outcome.out[-2000:]}\n{outcome.err[-4000:]}"
    assert "Traceback" not in outcome.err, shown
    assert outcome.status == case.status, shown
    lines = outcome.err.splitlines()
    errors = [line for line in lines if _ERROR.match(line)]
    if case.status == 2:
        assert errors == lines[-1:], f"the last line is not the only error:\n{shown}"
    assert len(errors) <= (case.status != 0), shown
    for pattern in [case.says] if isinstance(case.says, str) else case.says:
        assert re.search(pattern, outcome.err + outcome.out), f"no {pattern!r}:\n{shown}"
    assert not (raw := _CONTROL.findall(outcome.out + outcome.err)), f"control characters {raw}"


def _check_files(case: Case, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    def allowed(name: str, patterns: Sequence[str]) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)

    changed = [name for name in before if after.get(name) != before[name] and not allowed(name, case.changes)]
    assert not changed, f"input changed: {changed}"
    left = [name for name in after.keys() - before.keys() if not allowed(name, [*case.leaves, *case.changes])]
    assert not left, f"the case left files: {sorted(left)}"


def _snapshot(top: Path) -> dict[str, str]:
    """Return type, mode and content of everything below *top*, by path relative to the case's folder."""
    entries = {}
    for parent, folders, files in os.walk(top):
        for name in [*folders, *files]:
            path = Path(parent, name)
            kind = path.lstat().st_mode
            content = ""
            if stat.S_ISLNK(kind):
                content = str(path.readlink())
            elif stat.S_ISREG(kind):
                content = hashlib.sha256(path.read_bytes()).hexdigest()
            relative = os.path.relpath(path, top / "case").encode(errors="backslashreplace").decode()
            entries[relative] = f"{kind:o} {content}"
    return entries


def _children() -> set[int]:
    children: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that has just ended
            children.update(map(int, (task / "children").read_text().split()))
    return children


def _session(leader: int) -> list[int]:
    """Return the processes of the session of *leader* that have not ended."""
    members = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, _, _, session = (folder / "stat").read_text().rpartition(") ")[2].split()[:4]
            if int(session) == leader and state != "Z":
                members.append(int(folder.name))
    return members


#: Functions that have a cache, of the modules that have been looked at.
_cached: list[Callable] = []
_seen: set[str] = set()
#: Modules whose caches have nothing of a case's files: templates, widths of letters, functions of numbers and of
#: texts, and tables to which a site may add, but no case does.
_CONSTANT = {
    *("firsttouch.documents", "firsttouch.judge.causes", "firsttouch.records.drift"),
    *("firsttouch.statistics", "firsttouch.records.catalogue", "firsttouch.report.figures.svg"),
    *("firsttouch.report.forms", "firsttouch.report.text"),
}


def _clear_caches() -> None:
    """Clear the caches of this program's functions: another case has other files."""
    new = sys.modules.keys() - _seen
    _seen.update(new)
    for name in new - _CONSTANT:
        if name.startswith("firsttouch."):
            _cached.extend(
                value
                for value in vars(sys.modules[name]).values()
                if hasattr(value, "cache_clear") and getattr(value, "__module__", "") == name
            )
    for function in _cached:
        function.cache_clear()
