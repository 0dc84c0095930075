# SPDX-License-Identifier: Apache-2.0
"""Faults around staged files: kills at any moment, changed sources, two users, and hosts that lack something.

After each fault nothing is left behind, and nothing that changed is served.
"""

import contextlib
import functools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import firsttouch
from factories.genomes import built, installed
from factories.processes import wait_until
from firsttouch.cli import stage as command
from firsttouch.errors import BadInput
from firsttouch.execution import file_copies, ram_store, staging
from firsttouch.execution.staging import staged

FIRSTTOUCH = Path(sys.executable).with_name("firsttouch")
NOBODY = 65534
SIZE = 24 << 20
#: In the argv of the process that holds a RAM store.
RAM_STORE = b"firsttouch-ram"
STOPS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users, or mount on this host")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The FIRSTTOUCH_HOME of one test, by which its processes are found in /proc; at the end there is none."""
    monkeypatch.setenv("FIRSTTOUCH_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.chdir(tmp_path)
    yield tmp_path / "home"
    for each in staging.all_staged():
        staging.drop(each)
    wait_until(lambda: not processes(tmp_path / "home"), "the end of all processes")


@pytest.fixture
def files(tmp_path):
    """Two files, of which one is more than a block."""
    for name, size in {"large": SIZE, "small": 5000}.items():
        (tmp_path / name).write_bytes(random.Random(size).randbytes(size))  # noqa: S311 - any content does
        os.utime(tmp_path / name, (1e9, 1e9))
    return [tmp_path / "large", tmp_path / "small"]


def processes(home):
    """Return the processes that have *home* in their environment, by their programs."""
    entries = {}
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and int(process.name) != os.getpid():
            try:
                # The environment of a zombie is empty.
                if f"FIRSTTOUCH_HOME={home}\0".encode() in (process / "environ").read_bytes():
                    entries[int(process.name)] = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
    return entries


def found(home, word, launcher):
    """Return the process under *home* that has *word* in its argv, once there is one, or None if *launcher* ended.

    In the middle of execve(2) a process has no argv, so one that was seen may not be seen again at once.
    """
    numbers = []

    def look():
        numbers.extend(pid for pid, words in processes(home).items() if word in words)
        return numbers or launcher.poll() is not None

    wait_until(look, f"{word.decode()} in the argv of a process")
    return next(iter(numbers), None)


def start(*words):
    return subprocess.Popen(
        [FIRSTTOUCH, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def assert_nothing_is_left(home, launcher):
    """Check that a *launcher* which was stopped has printed no traceback, and has left no process.

    The copies are in mount namespaces of these processes only: without the processes the memory is free.
    """
    errors = launcher.communicate(timeout=120)[1]
    assert "Traceback" not in errors, errors
    wait_until(lambda: not processes(home), "the end of all processes")
    assert staging.all_staged() == []
    return errors


def test_kills_at_any_moment(home, files, run_cli):
    moments = random.Random(18)  # noqa: S311 - a fixed seed
    sleeper = ["sh", "-c", 'exec 3<"$0" 4>ready; exec sleep 1000', "{1}"]
    with_command = ["stage", "--on", "0", *files, "--", *sleeper]
    victims = [*("launcher",) * 3, *("holder",) * 2, *("command",) * 3, *("for",) * 3]
    for n, victim in enumerate(victims):
        number = signal.SIGKILL if victim == "holder" else STOPS[n % 3]
        words = ["stage", "--on", "0", "--keep", "1h", *files] if victim == "for" else with_command
        Path("ready").unlink(missing_ok=True)
        with start(*words) as launcher:
            pid = found(home, RAM_STORE, launcher)
            if victim == "holder":
                wait_until(lambda: any((f / "large").exists() for _, f in ram_store.holders()), "the copy")
            if victim == "command":
                wait_until(Path("ready").exists, "the command")
                pid = found(home, b"sleep", launcher)
            time.sleep(moments.uniform(0, 0.06))
            if victim in {"launcher", "for"}:
                launcher.send_signal(number)  # with --keep it may have ended
            else:
                os.kill(pid, number)
            if victim == "holder":
                root = Path(f"/proc/{pid}/root")
                wait_until(lambda root=root: not root.exists(), "the end of the holder")
                # The command perhaps runs, with copies that have gone: it is the user's to stop.
                wait_until(lambda: Path("ready").exists() or launcher.poll() is not None, "an end")
                launcher.terminate()
            if victim == "for":
                launcher.wait(120)
                for each in staging.all_staged():
                    assert each.stale() == []
                    assert (each.folder / "large").read_bytes() == files[0].read_bytes()
                    assert run_cli("staged", "drop", each.id).status == 0
            errors = assert_nothing_is_left(home, launcher)
            if victim == "command":
                assert launcher.returncode == 128 + number
            if victim == "holder":
                assert errors.splitlines()[-1].endswith("RAM store was killed, and its copies are gone"), errors
    again = run_cli("stage", "--on", "0", "--json", *files)
    assert again.status == 0, again.err
    assert staged(files, [0]) == Path(json.loads(again.out)["folder"])
    assert run_cli("staged", "drop").status == 0


def test_kills_of_the_launcher_of_copies_of_an_index(home, lambda_work, stand_in, tmp_path, tmp_path_factory):
    prefix = built(installed("bowtie2"), lambda_work[2], tmp_path_factory)
    stand_in("bowtie2-align-s", "exec sleep 1000")
    argv = ["run", "2Inst_Original+node-index", "--aligner", "bowtie2", "--index", prefix, "--threads", "2"]
    argv += ["--reads", lambda_work[1][0], "-o", tmp_path / "out.sam", "--share-host"]
    moments, there = random.Random(2), set(lambda_work[1][0].parent.iterdir())  # noqa: S311
    for number in STOPS:
        with start(*argv) as launcher:
            found(home, RAM_STORE, launcher)
            assert launcher.poll() is None, launcher.stderr.read()
            time.sleep(moments.uniform(0, 0.3))
            launcher.send_signal(number)
            assert_nothing_is_left(home, launcher)
        assert not list(tmp_path.glob("*out.sam*"))
    assert set(lambda_work[1][0].parent.iterdir()) == there


def rewrite_in_place(file):
    """Change a file without a change of its size and time of modification."""
    status = file.stat()
    with file.open("r+b") as out:
        out.write(b"other")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def replace(file):
    """Replace a file by one of the same size and time of modification."""
    other = file.with_name(f"{file.name}.new")
    shutil.copy2(file, other)
    other.replace(file)


def turn_into(make):
    def change(file):
        file.unlink()
        make(file)

    return change


def grow(file):
    with file.open("ab") as out:
        out.write(b"x")


#: What happens to a source.
CHANGES = {
    "grows": grow,
    "is-rewritten": rewrite_in_place,
    "is-replaced": replace,
    "is-truncated": lambda file: os.truncate(file, 1),
    "is-emptied": lambda file: os.truncate(file, 0),
    "is-touched": Path.touch,
    "is-deleted": Path.unlink,
    "is-a-pipe": turn_into(os.mkfifo),
    "is-a-folder": turn_into(Path.mkdir),
}


def test_nothing_that_changed_is_served(home, run_cli):
    for name in CHANGES:
        Path(name).write_bytes(bytes(5000))
    done = run_cli("stage", "--on", "0", *CHANGES)
    assert done.status == 0, done.err
    for name, change in CHANGES.items():
        assert staged([Path(name)], [0])
        change(Path(name))
        with contextlib.suppress(BadInput) if name in {"is-deleted", "is-a-pipe"} else contextlib.nullcontext():
            assert staged([Path(name)], [0]) is None, name
    (listed,) = json.loads(run_cli("staged", "list", "--json").out)["staged"]
    assert listed["state"] == "stale"
    assert sorted(Path(file).name for file in listed["stale"]) == sorted(CHANGES)


def test_a_source_that_changes_while_it_is_copied(home, run_cli, monkeypatch):
    monkeypatch.setattr(file_copies, "_CHUNK", 1 << 20)
    for name, change in CHANGES.items():
        Path(name).write_bytes(bytes(4 << 20))
        copied = []

        def change_once(done, change=change, file=Path(name), copied=copied):
            if not copied:
                change(file)
            copied.append(done)

        monkeypatch.setattr(command, "_meter", lambda _, change_once=change_once: change_once)
        for words in (["--", "touch", "started"], []):
            if not Path(name).is_file():
                continue
            copied.clear()
            done = run_cli("stage", "--on", "0", "--threads", "1", name, *words)
            lines = [line for line in done.err.splitlines() if not line.startswith("\r")]
            assert (done.status, done.out, len(lines)) == (2, "", 1), (name, done.err)
            assert f"{name}: it changed while it was copied" in lines[0]
            if name == "is-emptied":
                break
        assert not Path("started").exists()
        assert not processes(home)


def test_what_cannot_be_staged_is_one_line(home, files, run_cli, monkeypatch):
    with Path("vast").open("wb") as out:
        out.truncate(1 << 42)
    os.mkfifo("pipe")
    Path("gone").symlink_to("nowhere")
    Path("loop").symlink_to("loop")
    faults = [
        (["vast"], 3, "4 TiB are needed, and NUMA node 0 has "),
        ([*files, "none"], 2, "none: cannot be copied: No such file or directory"),
        ([*files, "gone"], 2, "gone: cannot be copied: No such file or directory"),
        (["loop"], 2, "loop: cannot be copied: Too many levels of symbolic links"),
        (["pipe", *files], 2, "pipe: not a regular file"),
    ]
    for words, status, message in faults:
        done = run_cli("stage", "--on", "0", *words)
        assert (done.status, done.out, len(done.err.splitlines())) == (status, "", 1), done.err
        assert message in done.err
        assert not processes(home)
    # The node fills up after its memory was counted.
    monkeypatch.setattr(ram_store, "needed_bytes", lambda _: 8 << 20)
    full = run_cli("stage", "--on", "0", *files)
    assert (full.status, full.out) == (3, "")
    assert "24 MiB do not fit into the RAM store, which is limited to 8 MiB" in full.err.splitlines()[-1]


# ----------------------------------------------------------------------
# Other users and other hosts


#: Runs a command as nobody.
DROP = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]


@functools.cache
def python_of_nobody():
    """Return a Python that nobody can execute; skips the test without one."""
    for python in (sys.executable, "/usr/bin/python3.11"):
        if runs([*DROP, "env", python, "-c", "0"]):
            return python
    pytest.skip("NOT TESTED: nobody cannot execute this Python")


@pytest.fixture
def as_nobody(home, monkeypatch):
    """Returns a function that gives an argv that runs ``firsttouch`` as nobody, with a folder of this user."""
    folder = Path(tempfile.mkdtemp(prefix="firsttouch-faults-"))
    folder.chmod(0o755)
    (folder / "nobody").mkdir(mode=0o700)
    os.chown(folder / "nobody", NOBODY, NOBODY)
    modules = [Path(firsttouch.__file__).parents[1], *(word for word in sys.path if "site-packages" in word)]
    # The homes are the same: only the users differ.
    monkeypatch.setenv("FIRSTTOUCH_HOME", f"{folder}/nobody")
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": f"{folder}/nobody",
        "FIRSTTOUCH_HOME": f"{folder}/nobody",
        "PYTHONPATH": ":".join(map(str, modules)),
        "PYTHONDONTWRITEBYTECODE": "1",
    }

    def argv(*words):
        variables = [f"{name}={value}" for name, value in environment.items()]
        python = python_of_nobody()
        return [*DROP, "env", "-i", "-C", str(folder), *variables, python, "-m", "firsttouch", *map(str, words)]

    argv.folder, argv.drop = folder, DROP
    yield argv
    shutil.rmtree(folder)


def runs(argv):
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


@root_only
def test_two_users_do_not_see_each_others_copies(as_nobody, run_cli):
    if not runs(as_nobody("--version")):
        pytest.skip("NOT TESTED: nobody cannot read this checkout")
    file = as_nobody.folder / "ref.fa"
    file.write_bytes(bytes(1 << 20))
    hidden = as_nobody.folder / "secret"
    hidden.touch(mode=0o600)
    theirs = subprocess.Popen(as_nobody("stage", "--on", "0", file, hidden), stderr=subprocess.PIPE, text=True)
    assert "secret: cannot be copied: Permission denied" in theirs.communicate(timeout=120)[1]
    assert theirs.returncode == 2
    theirs = subprocess.Popen(as_nobody("stage", "--on", "0", "--json", file), stdout=subprocess.PIPE, text=True)
    ours = json.loads(run_cli("stage", "--on", "0", "--json", file).out)
    other = json.loads(theirs.communicate(timeout=120)[0])
    try:
        assert ours["id"] != other["id"]
        assert staged([file], [0]) == Path(ours["folder"])
        assert [each.id for each in staging.all_staged()] == [ours["id"]]
        listed = subprocess.run(as_nobody("staged", "list", "--json"), capture_output=True, text=True, check=True)
        assert [each["id"] for each in json.loads(listed.stdout)["staged"]] == [other["id"]]
        for argv in (["cat", f"{ours['folder']}/ref.fa"], ["ls", ours["folder"]]):
            assert not runs([*as_nobody.drop, *argv])
        refused = subprocess.run(
            as_nobody("staged", "drop", ours["id"]), capture_output=True, text=True, check=False
        )
        assert refused.returncode == 2
        assert f"no staged files '{ours['id']}'" in refused.stderr
        assert run_cli("staged", "drop").status == 0
        assert Path(other["folder"], "ref.fa").stat().st_size == 1 << 20
    finally:
        dropped = subprocess.run(as_nobody("staged", "drop"), capture_output=True, text=True, check=False)
    assert dropped.returncode == 0, dropped.stderr
    assert not Path(other["folder"]).exists()


_PRIVATE = "mount -t tmpfs -o mode=700 %s $1/..; cp $3 $1.json;"
#: Shell commands, as root, that make the folder $1 what a holder's folder is not, or what its environment names.
FORGED = {
    "of another user": "",
    "in a folder of another user": 'chown -R 0 "$1"',
    "in a folder that others may write": 'chown -R 0 "${1%/*}"; chmod 777 "${1%/*}"',
    "on a disk": 'chown -R 0 "${1%/*}"; chmod 700 "${1%/*}"',
    "in a tmpfs of another program": f"{_PRIVATE % 'other'} mkdir $1; cp -p $2 $1",
    "a link": f"{_PRIVATE % 'firsttouch'} mkdir $1.0; cp -p $2 $1.0; ln -s $1.0 $1",
    "copies of another user": f"{_PRIVATE % 'firsttouch'} mkdir $1; cp -p $2 $1; chown 65534 $1/*",
}


@root_only
@pytest.mark.parametrize("setuid", [True, False], ids=["set-uid", "all ids root's"])
@pytest.mark.parametrize("commands", FORGED.values(), ids=FORGED)
def test_a_store_that_another_user_has_forged_is_not_served(as_nobody, setuid, commands):
    """The environment of a process that another user started is that user's, and so may be what it names."""
    file, sleep, inside = (as_nobody.folder / name for name in ("ref.fa", "sleep", "nobody/forged"))
    file.write_bytes(b"ours")
    shutil.copy(shutil.which("sleep"), sleep)
    sleep.chmod(0o4755)
    inside.mkdir()
    shutil.copy2(file, inside)
    (inside / file.name).write_bytes(b"evil")
    status = file.stat()
    os.utime(inside / file.name, ns=(0, status.st_mtime_ns))
    copies = {file.name: [str(file), file_copies.identity_of(status)]}
    document = {"space": [[0], 1, False, True], "created": 0, "until": None, "copies": copies, "links": {}}
    record = inside.with_suffix(".json")
    record.write_text(json.dumps(document))
    for forged in (inside, inside / file.name, record):
        os.chown(forged, 65534, 65534)
    saved = as_nobody.folder / "saved"
    shutil.copytree(inside, saved, copy_function=shutil.copy2)
    shutil.copy2(record, as_nobody.folder / "saved.json")
    script = f'set -e; {commands or ":"}; shift 3; exec "$@"'
    forging = ["unshare", "--mount", "--propagation=private", "sh", "-c", script, "sh"]
    forging += [str(inside), str(saved / file.name), str(as_nobody.folder / "saved.json")]
    variables = [f"RAM_STORE={inside}", f"FIRSTTOUCH_HOME={os.environ['FIRSTTOUCH_HOME']}"]
    started = [*(as_nobody.drop if setuid else []), "env", "-i", *variables, sleep, "60"]
    with subprocess.Popen([*forging, *started]) as process:
        try:
            wait_until(lambda: Path(f"/proc/{process.pid}/status").read_text().startswith("Name:\tsleep"), "sleep")
            ids = "\nUid:\t65534\t0\t0\t0\n" if setuid else "\nUid:\t0\t0\t0\t0\n"
            assert ids in Path(f"/proc/{process.pid}/status").read_text()
            assert staged([file], [0]) is None
            if commands != FORGED["copies of another user"]:
                assert staging.all_staged() == []
        finally:
            process.kill()


@root_only
def test_what_is_no_record_of_copies_is_not_listed(home, tmp_path):
    """The user's own environment may name anything, too."""
    script = 'mount -t tmpfs -o mode=700 firsttouch "$1" && cat >"$1/x.json" && mkdir "$1/x" && exec sleep 1000'
    for text in ("", "{", "[]", "5", "{}", '{"space": 1}', '{"space": [[0], 1], "copies": {"a": 5}, "links": {}}'):
        variables = {"RAM_STORE": f"{tmp_path}/x", "FIRSTTOUCH_HOME": str(home)}
        argv = ["unshare", "--mount", "--propagation=private", "sh", "-c", script, "sh", tmp_path]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, env={**os.environ, **variables}, text=True) as process:
            try:
                process.stdin.write(text)
                process.stdin.close()
                wait_until(
                    lambda: (process.pid, Path(f"/proc/{process.pid}/root{tmp_path}/x")) in ram_store.holders(),
                    "x",
                )
                assert staging.all_staged() == []
            finally:
                process.kill()


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
_OTHER_CPUSET = 'echo 0-1 >nodes; mount --bind nodes /sys/devices/system/node/has_memory; shift; exec "$@"'
_NO_NAMESPACES = """\
shift; echo 0 >/proc/sys/user/max_%s_namespaces; exec setpriv --ambient-caps=-all --inh-caps=-all "$@" """
_NO_RIGHTS = 'shift; exec setpriv --bounding-set=-all --inh-caps=-all "$@"'
_USER = ["--user", "--map-user=1000", "--keep-caps"]
#: Options of unshare(1), the shell commands, the NUMA node, and the message.
LACKING = {
    "no-folder-to-cover": (
        ["--mount"],
        _WITHOUT_BASES,
        "0",
        "none of the folders /dev/shm, /mnt, /media, /srv exists",
    ),
    "outside-of-the-cpuset": (["--mount"], _OTHER_CPUSET, "1", "NUMA node 1 .* is outside of the cpuset: use 0"),
    "no-node": (["--mount"], 'shift; exec "$@"', "900", "NUMA node 900 does not exist.*: use 0"),
    "no-user-namespaces": (
        _USER,
        _NO_NAMESPACES % "user",
        "0",
        "max_user_namespaces is 0; the administrator can change it: sysctl user.max_user_namespaces=10000",
    ),
    "no-mount-namespaces": (
        _USER,
        _NO_NAMESPACES % "mnt",
        "0",
        "max_mnt_namespaces is 0; the administrator can change it: sysctl user.max_mnt_namespaces=10000",
    ),
    "a-container-without-rights": (
        ["--user", "--map-root-user"],
        "echo 0 >/proc/sys/user/max_user_namespaces; " + _NO_RIGHTS,
        "0",
        "this user may not have one .*: .* the administrator can change it",
    ),
}


@root_only
def test_what_this_host_lacks_is_one_line_with_the_remedy(home, files, tmp_path):
    (tmp_path / "top").mkdir()
    for name, (options, script, node, message) in LACKING.items():
        argv = ["unshare", *options, "sh", "-c", script, "sh", str(tmp_path / "top")]
        argv += [str(FIRSTTOUCH), "stage", "--on", node, str(files[1]), "--", "touch", "started"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
        lines = done.stderr.splitlines()
        assert (done.returncode, done.stdout, len(lines)) == (3, "", 1), (name, done.stderr)
        assert lines[0].startswith("firsttouch: cannot be done here: ")
        assert re.search(message, lines[0]), lines[0]
        assert not Path("started").exists()
        assert not processes(home)
