# SPDX-License-Identifier: Apache-2.0
"""The guest runs commands exactly: status, bytes, time limits, files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from factories.processes import wait_until

from .guest import CommandError, Guest

pytestmark = [
    pytest.mark.parametrize("guest", ["small"], indirect=True),
]


def sh(script: str) -> list[str]:
    return ["sh", "-c", script]


@pytest.mark.parametrize("status", [0, 1, 127, 255])
def test_exit_status(guest: Guest, status: int) -> None:
    assert guest.run(sh(f"exit {status}")).returncode == status


def test_a_signal_is_a_negative_status(guest: Guest) -> None:
    assert guest.run(sh("kill -9 $$")).returncode == -signal.SIGKILL
    assert guest.run(sh("kill -TERM $$")).returncode == -signal.SIGTERM


def test_check_raises_with_the_output(guest: Guest) -> None:
    with pytest.raises(CommandError, match="reason") as caught:
        guest.run(sh("echo the reason >&2; exit 3"), check=True)
    assert caught.value.returncode == 3


def test_a_command_that_is_not_there(guest: Guest) -> None:
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        guest.run(["no-such-program"])
    with pytest.raises(FileNotFoundError):
        guest.run(["true"], cwd="/no/such/directory")
    with pytest.raises(TypeError, match="sh"):
        guest.run("true")
    assert guest.run(["true"]).returncode == 0


def test_output_is_exact_and_kept_apart(guest: Guest) -> None:
    every_byte = bytes(range(256)) * 16
    (guest.shared / "bytes").write_bytes(every_byte)
    outcome = guest.run(sh("cat bytes; cat bytes bytes >&2"), cwd=guest.shared)
    assert outcome.stdout == every_byte
    assert outcome.stderr == every_byte * 2
    assert guest.run(["printf", "a\r\nb"]).stdout == b"a\r\nb"
    assert guest.run(["true"]).stdout == b""


def test_large_output(guest: Guest) -> None:
    size = 8_000_000
    outcome = guest.run(sh(f"head -c {size} /dev/zero; echo end >&2"), timeout=120)
    assert len(outcome.stdout) == size
    assert not outcome.stdout.strip(b"\0")
    assert outcome.stderr == b"end\n"


def test_environment_and_directory(guest: Guest) -> None:
    outcome = guest.run(sh('echo "$FIRST|$HOME|$(pwd)"'), env={"FIRST": "a b\n'c'"}, cwd=guest.shared)
    assert outcome.text == f"a b\n'c'|{Path.home()}|{guest.shared}\n"
    assert guest.run(["hostname"]).text == f"{guest.machine.name}\n"
    assert guest.run(["cat"]).stdout == b""


def test_a_time_limit_kills_the_whole_process_group(guest: Guest) -> None:
    for seconds in (2, 10, 50):
        with pytest.raises(subprocess.TimeoutExpired) as caught:
            guest.run(sh("sleep 987 & echo begun; echo why >&2; sleep 987"), timeout=seconds)
        if caught.value.stderr:  # a command that is stopped before it begins shows nothing
            break
    assert (caught.value.stdout, caught.value.stderr) == (b"begun\n", b"why\n")
    assert guest.run(["pgrep", "-f", "sleep 987"]).returncode == 1


def test_what_a_time_limit_does_not_reach_holds_nothing_up(guest: Guest) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        guest.run(sh("setsid sleep 986 & sleep 986"), timeout=1)
    assert guest.run(["echo", "next"]).text == "next\n"


def test_orphans_are_reaped(guest: Guest) -> None:
    orphan = guest.run(sh("(true >/dev/null 2>&1 & echo $!)"), check=True).text.strip()
    wait_until(lambda: guest.run(["test", "-e", f"/proc/{orphan}"]).returncode, "the orphan to be reaped")


def test_the_shared_directory_is_the_same_on_both_sides(guest: Guest) -> None:
    ours, theirs = guest.shared / "ours", guest.shared / "theirs"
    for text in ("once", "twice, longer"):
        ours.write_text(text)
        assert guest.run(["cat", ours]).text == text
        guest.run(sh(f"printf '%s' '{text}' > {theirs}"), check=True)
        assert theirs.read_text() == text


def test_the_root_is_the_hosts_and_thrown_away(guest: Guest, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("as it was")
    assert guest.run(["cat", kept]).text == "as it was"
    guest.run(
        sh(f"echo changed > {kept}; echo new > {tmp_path}/new; touch /etc/new /run/new /tmp/new"), check=True
    )
    assert kept.read_text() == "as it was"
    assert not (tmp_path / "new").exists()
    assert not Path("/etc/new").exists()


def test_the_checkout_and_its_interpreter_work_inside(guest: Guest) -> None:
    source = Path(__file__).resolve().parents[2] / "src"
    outcome = guest.run(
        [sys.executable, "-c", "import firsttouch; print(firsttouch.__file__)"], env={"PYTHONPATH": str(source)}
    )
    assert outcome.text == f"{source / 'firsttouch' / '__init__.py'}\n", outcome.error_text


def test_the_clock_is_right(guest: Guest) -> None:
    # It is set once, while the guest boots: what holds the guest up then makes it late. Slurm takes 300 s.
    before = time.time()
    shown = float(guest.run(["date", "+%s.%N"], check=True).text)
    assert before - 60 <= shown <= time.time() + 1


def test_modules_can_be_loaded(guest: Guest) -> None:
    guest.run(sh("modprobe msr && test -c /dev/cpu/7/msr"), check=True)


def test_loopback_and_own_name(guest: Guest) -> None:
    listen = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); n = socket.gethostname();"
        "socket.create_connection((n, s.getsockname()[1])); print(s.accept()[1][0])"
    )
    assert guest.run(["/usr/bin/python3", "-I", "-S", "-c", listen]).text == "127.0.0.1\n"


def test_a_cpuset_can_forbid_numa_nodes(guest: Guest) -> None:
    script = (
        "cd /sys/fs/cgroup && mkdir -p test && echo 0,2 > test/cpuset.mems && echo 0-1,4-5 > test/cpuset.cpus &&"
        "echo $$ > test/cgroup.procs && grep _allowed_list /proc/self/status && numactl --membind=1 true"
    )
    outcome = guest.run(sh(script))
    assert outcome.text.split()[:4] == ["Cpus_allowed_list:", "0-1,4-5", "Mems_allowed_list:", "0,2"]
    assert outcome.returncode == 1
    assert "<1> is invalid" in outcome.text  # numactl says it on standard output


def test_a_pu_can_be_taken_offline_and_brought_back(guest: Guest) -> None:
    switch = "/sys/devices/system/cpu/cpu5/online"
    assert guest.run(sh(f"echo 0 > {switch}; nproc; echo 1 > {switch}; nproc")).text == "7\n8\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the owner of a file")
def test_owner_and_mode_of_shared_files(guest: Guest) -> None:
    file = guest.shared / "owned"
    guest.run(sh(f"touch {file}; chmod 640 {file}; chown 1:1 {file}"), check=True)
    status = file.stat()
    assert (status.st_mode & 0o777, status.st_uid, status.st_gid) == (0o640, 1, 1)
