# SPDX-License-Identifier: Apache-2.0
"""One measurement at a time, and no process left behind."""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from factories.processes import wait_until
from factories.users import shared_folder
from firsttouch.errors import BadInput
from firsttouch.execution import host_lock


@pytest.fixture(autouse=True)
def own_lock(tmp_path, monkeypatch):
    monkeypatch.setenv("FIRSTTOUCH_LOCK", str(tmp_path))


def user():
    """Return the name of this process's user, or the number of one that has none."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_second_waits_for_the_first():
    messages, order = [], []

    def second():
        with host_lock.hold_host(messages.append):
            order.append("second")

    with host_lock.hold_host(messages.append):
        assert messages == []
        waiting = threading.Thread(target=second)
        waiting.start()
        wait_until(lambda: messages, "the second")
        order.append("first")
    waiting.join(20)
    assert order == ["first", "second"]
    assert messages == [f"waiting for another run on this host to end: process {os.getpid()} of {user()}"]


def test_a_command_that_can_share_the_host_says_so_while_it_waits():
    messages = []

    def second():
        with host_lock.hold_unless_shared(messages.append, share_host=False):
            pass

    with host_lock.hold_host(messages.append):
        waiting = threading.Thread(target=second)
        waiting.start()
        while not messages and waiting.is_alive():
            waiting.join(0.01)
    waiting.join(20)
    (message,) = messages
    assert "--share-host" in message
    with host_lock.hold_host(messages.append), host_lock.hold_unless_shared(messages.append, share_host=True):
        assert len(messages) == 1


def test_an_error_lets_go(tmp_path):
    with pytest.raises(ZeroDivisionError), host_lock.hold_host(print):
        raise ZeroDivisionError
    with host_lock.hold_host(pytest.fail):
        pass


WAITS = "waiting for another run"
HOLDER = """\
import sys, time
from firsttouch.execution import host_lock as exclusive
with exclusive.hold_host(print, shared="shared" in sys.argv):
    print("held", flush=True)
    if "go" not in sys.argv:
        time.sleep(60)
"""


@contextlib.contextmanager
def holder(*arguments, before=(), says="held\n"):
    """Run a process that holds the lock or waits for it, and *says* so; yield it, and kill it at the end."""
    argv = [*before, sys.executable, "-c", HOLDER, *arguments]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1) as process:
        try:
            line = process.stdout.readline()
            assert line.startswith(says), line + (process.stdout.read() if line.startswith("Traceback") else "")
            yield process
        finally:
            process.kill()


def test_a_killed_holder_lets_go():
    with holder() as process:
        process.kill()
        process.wait()
    with host_lock.hold_host(pytest.fail):
        pass


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="only root becomes another user")
@pytest.mark.parametrize("first", [0, 65534])
def test_another_user_waits(monkeypatch, first):
    """Also if the file is another user's, in a folder that everybody may write to."""
    with shared_folder(0o1777) as folder:
        monkeypatch.setenv("FIRSTTOUCH_LOCK", str(folder))
        become = {u: ("setpriv", f"--reuid={u}", f"--regid={u}", "--clear-groups") for u in (0, 65534)}
        imports = [*become[65534], "env", "-C", folder, sys.executable, "-c", "import firsttouch"]
        if subprocess.run(imports, check=False).returncode:
            pytest.skip(f"NOT TESTED: another user cannot enter {folder} or run this checkout")
        with holder(before=("sh", "-c", 'umask 077; exec "$@"', "sh", *become[first])) as process:
            waits = f"{WAITS} on this host to end: process {process.pid} of "
            with holder(before=become[65534 - first], says=waits):
                pass


def test_runs_for_their_output_share_the_host_and_measurements_do_not():
    with holder("shared"):
        with host_lock.hold_host(pytest.fail, shared=True):
            pass
        with holder(says=WAITS):
            pass
    with holder(), holder("shared", says=WAITS):
        pass


@pytest.mark.parametrize("before", [(), ("setsid", "-w"), ("sh", "-c", '"$@"; exit', "sh"), ("env", "-i")])
def test_what_a_holder_starts_measures_on_its_behalf(before, tmp_path):
    if before == ("env", "-i"):
        before = ("env", "-i", f"FIRSTTOUCH_LOCK={tmp_path}")
    with host_lock.hold_host(pytest.fail), host_lock.no_process_left():
        with holder("go", before=before):
            pass
        with holder("go", "shared"):
            pass


def test_a_holder_that_is_no_ancestor_is_waited_for_whatever_the_environment_says(monkeypatch):
    with holder() as process:
        for name in ("FIRSTTOUCH_LOCK_FD", "FIRSTTOUCH_LOCK_HOLDER"):
            monkeypatch.setenv(name, str(process.pid))
        with holder(says=WAITS):
            pass


def test_another_host_in_the_same_folder_is_not_waited_for(monkeypatch):
    with holder():
        monkeypatch.setattr("os.uname", lambda: SimpleNamespace(nodename="another-host"))
        with host_lock.hold_host(pytest.fail):
            pass


def test_where_the_lock_is(monkeypatch, tmp_path):
    monkeypatch.setenv("FIRSTTOUCH_LOCK", str(tmp_path / "made"))
    assert host_lock._file().parent.is_dir()
    monkeypatch.delenv("FIRSTTOUCH_LOCK")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    shared, unshared = tmp_path / "all", tmp_path / "mine"
    for folder, mode in ((shared, 0o1777), (unshared, 0o755)):
        folder.mkdir()
        folder.chmod(mode)
    monkeypatch.setattr(host_lock, "PLACES", (tmp_path / "no", unshared, shared))
    assert host_lock._file() == shared / f"firsttouch-{os.uname().nodename}.lock"
    monkeypatch.setenv("FIRSTTOUCH_LOCK", __file__)
    with pytest.raises(BadInput, match="FIRSTTOUCH_LOCK: "), host_lock.hold_host(print):
        pass


def test_a_file_that_is_removed_while_it_is_waited_for(tmp_path):
    """A waiting process must not lock a file that has been removed."""
    with holder() as process:
        messages = []

        def say(message):
            messages.append(message)
            (tmp_path / lock_name()).unlink()
            process.kill()

        with host_lock.hold_host(say):
            assert len(messages) == 1
            assert host_lock._holders(os.open(tmp_path / lock_name(), os.O_RDONLY)) == {os.getpid()}


def lock_name():
    return f"firsttouch-{os.uname().nodename}.lock"


def test_a_link_of_somebody_else_is_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / lock_name()).symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"), host_lock.hold_host(print):
        pass
    assert victim.read_text() == "precious"


def test_a_pipe_of_somebody_else_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / lock_name())
    with pytest.raises(BadInput, match="a regular file"), host_lock.hold_host(print):
        pass


@pytest.mark.parametrize("script", ["setsid sleep 60 & echo $!", "sh -c '(sleep 60 & echo $!) &'"])
def test_no_process_is_left(script):
    with host_lock.no_process_left():
        started = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True)
        pid = int(started.stdout.readline())
        assert alive(pid)
    assert not alive(pid)
    assert not alive(started.pid)
    started.stdout.close()
    started.wait()


def test_what_deaf_processes_get_is_a_kill():
    with host_lock.no_process_left():
        deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
        script = f"{deaf}; print(1, flush=True); time.sleep(60)"
        started = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        started.stdout.readline()
    assert not alive(started.pid)
    started.stdout.close()
    started.wait()


def test_what_one_from_before_starts_stays():
    script = "read line; tail -f /dev/null & echo $!; wait"
    with subprocess.Popen(
        ["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as before:
        with host_lock.no_process_left():
            before.stdin.write("go\n")
            before.stdin.flush()
            child = int(before.stdout.readline())
        assert alive(child)
        os.kill(child, signal.SIGKILL)


def test_an_error_leaves_none_either():
    started = []

    def interrupted():
        with host_lock.no_process_left():
            started.append(subprocess.Popen(["sleep", "60"]))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not alive(started[0].pid)
    started[0].wait()
