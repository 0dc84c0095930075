# SPDX-License-Identifier: Apache-2.0
"""Faults around files in memory: kills at any moment, and hosts that lack something. Nothing is left behind."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from factories.genomes import built, installed
from factories.processes import wait_until
from firsttouch.execution.placement_check import family

FIRSTTOUCH = Path(sys.executable).with_name("firsttouch")
#: In the argv of the process that holds a RAM store.
RAM_STORE = b"firsttouch-ram"
STOPS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
#: The words of a command with a scratch in memory, before the program.
WITH_SCRATCH = ("run", "1x-local", "--scratch", "ram:16MiB", "--share-host", "--")
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount on this host")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The FIRSTTOUCH_HOME of one test, by which its processes are found in /proc; at the end there is none."""
    monkeypatch.setenv("FIRSTTOUCH_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.chdir(tmp_path)
    yield tmp_path / "home"
    wait_until(lambda: not processes(tmp_path / "home"), "the end of all processes")


def processes(home):
    """Return the processes that have *home* in their environment."""
    numbers = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and int(process.name) != os.getpid():
            try:
                # The environment of a zombie is empty.
                if f"FIRSTTOUCH_HOME={home}\0".encode() in (process / "environ").read_bytes():
                    numbers.append(int(process.name))
            except OSError:
                continue
    return numbers


def member(launcher, word):
    """Return the process with *word* in its argv that *launcher* has started, once there is one.

    None if *launcher* has ended. In the middle of execve(2) a process has no argv.
    """
    numbers = []

    def look():
        for pid in family(launcher.pid):
            try:
                if word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                    numbers.append(pid)
            except OSError:
                continue
        return numbers or launcher.poll() is not None

    wait_until(look, f"{word.decode()} in the argv of a process")
    return next(iter(numbers), None)


def start(*words):
    return subprocess.Popen(
        [FIRSTTOUCH, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def assert_nothing_is_left(home, launcher, holder):
    """Check that a *launcher* which was stopped has printed no traceback, and has left no process.

    The files are in the mount namespace of the *holder* only: without the processes the memory is free.
    """
    errors = launcher.communicate(timeout=120)[1]
    assert "Traceback" not in errors, errors
    wait_until(lambda: not processes(home) and not Path(f"/proc/{holder}").exists(), "the end of all processes")
    return errors


def test_kills_at_any_moment(home):
    moments = random.Random(18)  # noqa: S311 - a fixed seed
    script = 'head -c 5000000 /dev/zero >"$TMPDIR/x"; touch ready; exec sleep 1000'
    victims = [*("launcher",) * 3, *("holder",) * 2, *("command",) * 3]
    for n, victim in enumerate(victims):
        number = signal.SIGKILL if victim == "holder" else STOPS[n % 3]
        Path("ready").unlink(missing_ok=True)
        with start(*WITH_SCRATCH, "sh", "-c", script) as launcher:
            pid = holder = member(launcher, RAM_STORE)
            assert holder
            if victim != "launcher":
                wait_until(Path("ready").exists, "the command")
                pid = member(launcher, b"sleep" if victim == "command" else RAM_STORE)
            time.sleep(moments.uniform(0, 0.06))
            os.kill(launcher.pid if victim == "launcher" else pid, number)
            if victim == "holder":
                # The program runs on, without its files: it is the user's to stop.
                is_there = Path(f"/proc/{pid}/root").exists
                wait_until(lambda is_there=is_there: not is_there(), "the end of the holder")
                launcher.terminate()
            assert_nothing_is_left(home, launcher, holder)
            if victim == "command":
                assert launcher.returncode == 128 + number


def test_kills_of_the_launcher_of_copies_of_an_index(home, lambda_work, stand_in, tmp_path, tmp_path_factory):
    prefix = built(installed("bowtie2"), lambda_work[2], tmp_path_factory)
    stand_in("bowtie2-align-s", "exec sleep 1000")
    argv = ["run", "2x-bound+node-index", "--aligner", "bowtie2", "--index", prefix, "--threads", "2"]
    argv += ["--reads", lambda_work[1][0], "-o", tmp_path / "out.sam", "--share-host"]
    moments, there = random.Random(2), set(lambda_work[1][0].parent.iterdir())  # noqa: S311
    for number in STOPS:
        with start(*argv) as launcher:
            holder = member(launcher, RAM_STORE)
            assert holder, launcher.stderr.read()
            time.sleep(moments.uniform(0, 0.3))
            launcher.send_signal(number)
            assert_nothing_is_left(home, launcher, holder)
        assert not list(tmp_path.glob("*out.sam*"))
    assert set(lambda_work[1][0].parent.iterdir()) == there


#: Shell commands that take something from the host that a command in their private mount namespace sees.
_WITHOUT_BASES = """\
top=$1; shift; mount -t tmpfs none "$top"
for each in /*; do
    case $each in
    /dev|/mnt|/media|/srv) ;;
    *) if test -L "$each"; then cp -P "$each" "$top$each"
       elif test -d "$each"; then mkdir "$top$each"; mount --rbind "$each" "$top$each"; fi ;;
    esac
done
mkdir "$top/dev"; touch "$top/dev/null"; mount --bind /dev/null "$top/dev/null"
exec chroot "$top" sh -c 'cd "$0" && exec "$@"' "$PWD" "$@" """
_NO_NAMESPACES = """\
shift; echo 0 >/proc/sys/user/max_%s_namespaces; exec setpriv --ambient-caps=-all --inh-caps=-all "$@" """
_NO_RIGHTS = 'shift; exec setpriv --bounding-set=-all --inh-caps=-all "$@"'
_USER = ["--user", "--map-user=1000", "--keep-caps"]
#: Options of unshare(1), the shell commands, and the message.
LACKING = {
    "no-folder-to-cover": (["--mount"], _WITHOUT_BASES, "one of the folders /dev/shm, .*, and none exists"),
    "no-user-namespaces": (
        _USER,
        _NO_NAMESPACES % "user",
        "max_user_namespaces is 0; the administrator can change it: sysctl user.max_user_namespaces=10000",
    ),
    "no-mount-namespaces": (
        _USER,
        _NO_NAMESPACES % "mnt",
        "max_mnt_namespaces is 0; the administrator can change it: sysctl user.max_mnt_namespaces=10000",
    ),
    "a-container-without-rights": (
        ["--user", "--map-root-user"],
        "echo 0 >/proc/sys/user/max_user_namespaces; " + _NO_RIGHTS,
        "this user may not create .*: .* the administrator can change it",
    ),
}


@root_only
def test_what_this_host_lacks_is_one_line_with_the_remedy(home, tmp_path):
    (tmp_path / "top").mkdir()
    for name, (options, script, message) in LACKING.items():
        argv = ["unshare", *options, "sh", "-c", script, "sh", str(tmp_path / "top")]
        argv += [str(FIRSTTOUCH), *WITH_SCRATCH, "touch", "started"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
        lines = done.stderr.splitlines()
        assert (done.returncode, done.stdout, len(lines)) == (3, "", 1), (name, done.stderr)
        assert lines[0].startswith("firsttouch: cannot be done here: ")
        assert re.search(message, lines[0]), lines[0]
        assert not Path("started").exists()
        assert not processes(home)
