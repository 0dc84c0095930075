# SPDX-License-Identifier: Apache-2.0
"""Files that root writes where another user may write, too: who decides their modes, content and places."""

import json
import os
import stat
from pathlib import Path

import pytest

from factories.users import OTHER, firsttouch_as_other, root_only, run_as_other, shared_folder
from firsttouch.advice import saved
from firsttouch.campaign.journal import Journal
from firsttouch.fleet import verdict_log
from firsttouch.judge.verdict import HostVerdict
from firsttouch.records import append_log, atomic_files, schema, store
from firsttouch.records.schema import Record

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
    return saved.save(saved.Key("host", "program", 1), "1x-default", None, {}, str)


def write_verdict(_, folder):
    """Write a host's verdict."""
    verdict_log.write(HostVerdict("n1", "s", (), unjudged=0, missing=()), 1.0, folder / "n1")
    return folder / "n1"


def write_output(_, folder):
    """Write any output."""
    with atomic_files.replace(folder / "output") as partial:
        partial.write_text("text")
    return folder / "output"


WRITERS = [write_advice, write_verdict, write_output]


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
    with atomic_files.replace(folder / "of-root") as partial:
        exchange(secret, partial)
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    with atomic_files.scratch(folder / "other") as partial:
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


def test_verdicts_that_another_user_logged_are_ignored(folder, capsys):
    for host in ("n1", "n2"):
        verdict_log.append(HostVerdict(host, "s", (), unjudged=0, missing=()), 1.0, "c-1", folder)
    assert list(verdict_log.read(folder)) == ["n1", "n2"]
    (folder / "n2.jsonl").unlink()
    assert shell(folder, "sed s/n1/n2/ n1.jsonl > n2.jsonl; ln -s n1.jsonl n3.jsonl").returncode == 0
    capsys.readouterr()
    assert [list(verdict_log.read(folder)) for _ in range(2)] == [["n1"]] * 2
    others = "ignored, because other users wrote them: n2.jsonl, n3.jsonl"
    assert capsys.readouterr().err == f"firsttouch: {folder}: {others}\n"
    os.chown(folder, OTHER, OTHER)
    assert list(verdict_log.read(folder)) == ["n1", "n2"]


def test_no_line_is_appended_where_a_link_of_another_user_leads(folder, secret):
    assert shell(folder, "ln -s root/secret n1.jsonl").returncode == 0
    with pytest.raises(OSError, match="a link of another user"):
        append_log.append(folder / "n1.jsonl", "{}\n")
    assert secret.read_text() == TEXT
    # Who owns the folder does not decide what is changed outside of it.
    assert shell(folder, 'mkdir -m 777 n1; ln -s "$1" n1/records.jsonl', secret).returncode == 0
    journal = Journal(folder / "n1")
    journal.open()
    with pytest.raises(OSError, match="a link of another user"):
        journal.add([measured("n1")])
    assert secret.read_text() == TEXT
    (folder / "own.jsonl").symlink_to(secret)
    append_log.append(folder / "own.jsonl", "{}\n")
    assert secret.read_text() == "{}\n"


# ----------------------------------------------------------------------
# Stores that several users share


def measured(host, number=1):
    """Return a record of a host."""
    return Record("latency", "random_latency", "ns", "lower", (float(number),), host=host, system="local")


def hosts(path):
    """Return the hosts whose records are read, and why the others are not."""
    unread = []
    sources = store.find([path], unread.append)
    parts = store.tables(sources, unread.append)
    read = [host for part in parts for host in part.records(["host"])["host"]]
    return sorted(read), [str(u) for u in unread]


@pytest.fixture
def shared():
    """Returns a store of root that the group of the other user shares, as the manual says."""
    with shared_folder() as folder:
        path = folder / "store"
        path.mkdir()
        os.chown(path, 0, OTHER)
        path.chmod(0o3775)
        yield path


@pytest.mark.parametrize("umask", [0o002, 0o077, 0o022])
def test_no_member_of_a_shared_store_changes_the_records_of_another(shared, umask):
    schema.append(shared.parent / "records.jsonl", [measured("n1")])
    for user in (OTHER - 1, OTHER):
        words = ("store", "append", shared, shared.parent / "records.jsonl")
        done = firsttouch_as_other(*words, folder=shared.parent, user=user, umask=umask)
        assert done.returncode == 0, done.stderr
    assert {stat.S_IMODE(file.stat().st_mode) for file in shared.iterdir()} == {0o644}
    files = {file.stat().st_uid: file for file in shared.iterdir()}
    assert sorted(files) == [OTHER - 1, OTHER]
    names = files[OTHER].name, files[OTHER - 1].name
    for command in (
        'cp "$1" "$2"',
        ': > "$2"',
        'mv "$1" "$2"',
        'rm -f "$2"',
        'chmod g+w "$2"',
        'ln -sf "$1" "$2"',
    ):
        assert shell(shared, command, *names).returncode != 0, command
    assert hosts(shared) == (["n1", "n1"], [])


def test_files_of_a_folder_without_the_sticky_bit_count_only_of_its_owner_root_and_this_user(shared):
    shared.chmod(0o2775)
    file = store.append(shared, [measured("n1")])
    (shared / "sub").mkdir()
    foreign = store.append(shared, [measured("n2")])
    store.append(shared / "sub", [measured("n3")])
    for path in (foreign, shared / "sub"):
        os.chown(path, OTHER, OTHER)
    read, unread = hosts(shared)
    assert read == ["n1"]
    reason = f"ignored: of another user ({OTHER}), who does not own the folder: its owner shares it by mode 3775"
    assert sorted(unread) == sorted([f"{foreign}: {reason}", f"{shared / 'sub'}: {reason}"])
    # The values alone are of another user, too.
    os.chown(store.values_of(file), OTHER - 1, OTHER)
    os.chown(shared, OTHER, OTHER)
    assert hosts(shared)[0] == ["n2", "n3"]
    shared.chmod(0o3775)
    assert hosts(shared) == (["n1", "n2", "n3"], [])


def test_who_would_append_for_nobody_is_told_before(shared):
    shared.chmod(0o2775)
    schema.append(shared.parent / "records.jsonl", [measured("n1")])
    words = ("store", "append", shared, shared.parent / "records.jsonl")
    done = firsttouch_as_other(*words, folder=shared.parent)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"firsttouch: error: {shared}: the store of another user, where records of this user do not count: "
        "its owner shares it by mode 3775"
    ]
    assert not list(shared.iterdir())


def test_a_new_store_can_be_written_by_its_owner_only(shared):
    schema.append(shared.parent / "records.jsonl", [measured("n1")])
    (shared.parent / "open").mkdir()
    (shared.parent / "open").chmod(0o777)
    words = ("store", "append", shared.parent / "open" / "st", shared.parent / "records.jsonl")
    assert firsttouch_as_other(*words, folder=shared.parent, umask=0).returncode == 0
    assert stat.S_IMODE((shared.parent / "open" / "st").stat().st_mode) == 0o755


def test_links_in_a_shared_store_are_followed_only_for_those_who_decide(shared, secret):
    store.append(shared, [measured("n1")])
    elsewhere = store.append(secret.parent / "st", [measured("n2")])
    schema.append(secret.parent / "lines" / "records.jsonl", [measured("n3")])
    for name, target in (("folder", elsewhere.parent), (elsewhere.name, elsewhere), ("root", "/")):
        assert shell(shared, 'ln -s "$1" "$2"', target, name).returncode == 0
    lines = secret.parent / "lines" / "records.jsonl"
    assert shell(shared, 'mkdir sub && ln -s "$1" sub/records.jsonl', lines).returncode == 0
    read, unread = hosts(shared)
    assert read == ["n1"]
    reason = f"ignored: a link of another user ({OTHER}), who does not decide what this store reads"
    names = ("folder", elsewhere.name, "root", "sub/records.jsonl")
    assert sorted(unread) == sorted(f"{shared / name}: {reason}" for name in names)
    for entry in shared.iterdir():
        if entry.is_symlink():
            entry.unlink()
    (shared / "folder").symlink_to(elsewhere.parent)
    assert hosts(shared)[0] == ["n1", "n2"]
    os.chown(shared / "folder", OTHER, OTHER, follow_symlinks=False)
    assert hosts(shared)[0] == ["n1"]
    os.chown(shared, OTHER, OTHER)
    assert hosts(shared) == (["n1", "n2", "n3"], [])


def test_nothing_below_proc_is_read(shared, tmp_path, monkeypatch):
    store.append(tmp_path / "st", [measured("n2")])
    monkeypatch.chdir(tmp_path / "st")
    store.append(shared, [measured("n1")])
    (shared / "link").symlink_to(f"/proc/{os.getpid()}")
    read, unread = hosts(shared)
    assert (read, unread) == (["n1"], [f"{shared / 'link'}: ignored: a link into /proc"])
    assert hosts(Path("/proc/self")) == ([], [])


def test_no_member_of_a_shared_store_hides_it_by_a_campaign(shared):
    store.append(shared, [measured("n1")])
    assert shell(shared, ": > campaign.json").returncode == 0
    reason = f"ignored: a campaign of another user ({OTHER}), who does not decide what this store reads"
    assert hosts(shared) == (["n1"], [f"{shared / 'campaign.json'}: {reason}"])


def test_what_a_stranger_adds_is_named_and_leaves_verdicts_as_they_are(shared, run_cli):
    store.append(shared, [measured("n1", number) for number in range(1, 4)])
    expected = run_cli("validate", "--system", "local", "--json", shared)
    assert (
        shell(shared, "ln -s / sessions-0123456789abcdef.parquet; ln -s / all; : > campaign.json").returncode == 0
    )
    done = run_cli("validate", "--system", "local", "--json", shared)
    assert done.status == 2
    assert json.loads(done.out)["hosts"] == json.loads(expected.out)["hosts"]
    assert done.err.count("left out: ") == 3
