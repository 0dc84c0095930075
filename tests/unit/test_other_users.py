# SPDX-License-Identifier: Apache-2.0
"""Files that root writes where another user may write, too: who decides their modes, content and places."""

import os
import stat

import pytest

from factories.users import OTHER, root_only, run_as_other, shared_folder
from firsttouch.advice import saved
from firsttouch.judge import verdict_file
from firsttouch.judge.verdict import HostVerdict
from firsttouch.quarantine import exclusion
from firsttouch.records import append_log, atomic_files

pytestmark = root_only
TEXT = "of root"


@pytest.fixture
def folder():
    """Returns a folder where everybody may create files, as in /tmp."""
    with shared_folder(0o1777) as shared:
        yield shared


@pytest.fixture
def secret(folder):
    """Returns a file that only root may read, in a folder that only root may enter."""
    (folder / "root").mkdir(mode=0o700)
    file = folder / "root" / "secret"
    file.write_text(TEXT)
    file.chmod(0o600)
    return file


def shell(folder, command, *words):
    """Run a shell's command as the other user."""
    return run_as_other("sh", "-c", command, "sh", *words, folder=folder)


def write_advice(monkeypatch, folder):
    """Write saved advice."""
    monkeypatch.setenv("FIRSTTOUCH_ADVICE", str(folder))
    return saved.save(saved.Key("host", "program", 1), "1Inst_Original", None, {})


def write_exclusions(_, folder):
    """Write the list of hosts to avoid."""
    exclusion.publish(exclusion.Exclusions(0.0, ()), folder / "exclude.json")
    return folder / "exclude.json"


def write_verdict(_, folder):
    """Write a host's verdict."""
    verdict_file.write(HostVerdict("n1", "s", (), unjudged=0, missing=()), 1.0, folder / "n1")
    return folder / "n1"


def write_output(_, folder):
    """Write any output."""
    with atomic_files.replacing(folder / "output") as partial:
        partial.write_text("text")
    return folder / "output"


WRITERS = [write_advice, write_exclusions, write_verdict, write_output]


@pytest.mark.parametrize("write", WRITERS)
def test_a_file_takes_no_mode_from_a_file_of_another_user(folder, monkeypatch, write):
    name = write(monkeypatch, folder).name
    (folder / name).unlink()
    assert shell(folder, 'umask 0; : > "$1"', name).returncode == 0
    assert stat.S_IMODE((folder / name).stat().st_mode) == 0o666
    file = write(monkeypatch, folder)
    content = file.read_bytes()
    assert shell(folder, 'echo forged > "$1"', name).returncode != 0
    assert (file.stat().st_uid, file.stat().st_mode & 0o022, file.read_bytes()) == (0, 0, content)


@pytest.mark.parametrize("write", WRITERS)
def test_a_link_of_another_user_is_replaced_and_not_followed(folder, secret, monkeypatch, write):
    name = write(monkeypatch, folder).name
    (folder / name).unlink()
    assert shell(folder, 'ln -s root/secret "$1"', name).returncode == 0
    assert not write(monkeypatch, folder).is_symlink()
    assert secret.read_text() == TEXT


@pytest.mark.parametrize("exchange", [os.symlink, os.link])
def test_a_new_file_that_was_exchanged_changes_the_mode_of_no_other_file(folder, secret, exchange):
    (folder / "of-root").touch(0o666)
    (folder / "of-root").chmod(0o666)
    with atomic_files.replacing(folder / "of-root") as partial:
        exchange(secret, partial)
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    with atomic_files.scratch(folder / "exclude.json") as partial:
        exchange(secret, partial)
        atomic_files.set_mode(partial, 0o644)
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600


def test_advice_behind_a_link_of_another_user_is_ignored(folder, secret, monkeypatch):
    key = saved.Key("host", "program", 1)
    file = write_advice(monkeypatch, folder)
    file.rename(secret)
    assert shell(folder, 'ln -s root/secret "$1"', file.name).returncode == 0
    messages = []
    assert saved.lookup(key, messages.append) is None
    assert f"saved advice of another user ({OTHER})" in messages[0]


def test_no_line_is_appended_where_a_link_of_another_user_leads(folder, secret):
    assert shell(folder, "ln -s root/secret n1.jsonl").returncode == 0
    with pytest.raises(OSError, match="a link of another user"):
        append_log.append(folder / "n1.jsonl", "{}\n")
    assert secret.read_text() == TEXT
    (folder / "own.jsonl").symlink_to(secret)
    append_log.append(folder / "own.jsonl", "{}\n")
    assert secret.read_text() == "{}\n"
