# SPDX-License-Identifier: Apache-2.0
"""One measurement at a time, and no process left behind."""

import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time

import pytest

from firsttouch import exclusive

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def own_lock(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_second_waits_for_the_first():
    said, order = [], []

    def second():
        with exclusive.measuring(said.append):
            order.append("second")

    with exclusive.measuring(said.append):
        assert said == []
        waiting = threading.Thread(target=second)
        waiting.start()
        deadline = time.monotonic() + 20
        while not said and time.monotonic() < deadline:
            time.sleep(0.01)
        order.append("first")
    waiting.join(20)
    assert order == ["first", "second"]
    assert said == [f"another measurement (process {os.getpid()}) is under way on this host: waiting for its end"]


def test_an_error_lets_go(tmp_path):
    with pytest.raises(ZeroDivisionError), exclusive.measuring(print):
        raise ZeroDivisionError
    with exclusive.measuring(pytest.fail):
        pass


def test_a_killed_holder_lets_go(tmp_path):
    script = (
        "import tempfile, time; from firsttouch import exclusive\n"
        f"tempfile.tempdir = {str(tmp_path)!r}\n"
        "with exclusive.measuring(print):\n    print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        holder.kill()
        holder.wait()
    with exclusive.measuring(pytest.fail):
        pass


def test_a_link_of_somebody_else_is_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / f"firsttouch-{os.getuid()}-{platform.node()}.lock").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"), exclusive.measuring(print):
        pass
    assert victim.read_text() == "precious"


@pytest.mark.parametrize(
    "script",
    [
        "sleep 60 & echo $!",
        "setsid sleep 60 & echo $!",
        "sh -c '(sleep 60 & echo $!) &'",
    ],
)
def test_no_process_is_left(script):
    with exclusive.no_process_left():
        started = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True)
        pid = int(started.stdout.readline())
        assert alive(pid)
    assert not alive(pid)
    assert not alive(started.pid)
    started.stdout.close()
    started.wait()


def test_what_deaf_processes_get_is_a_kill():
    with exclusive.no_process_left():
        deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
        script = f"{deaf}; print(1, flush=True); time.sleep(60)"
        started = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        started.stdout.readline()
    assert not alive(started.pid)
    started.stdout.close()
    started.wait()


def test_those_from_before_stay():
    with subprocess.Popen(["sleep", "60"]) as before:
        with exclusive.no_process_left():
            pass
        assert before.poll() is None
        before.send_signal(signal.SIGKILL)


def test_an_error_leaves_none_either():
    started = []

    def interrupted():
        with exclusive.no_process_left():
            started.append(subprocess.Popen(["sleep", "60"]))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not alive(started[0].pid)
    started[0].wait()
