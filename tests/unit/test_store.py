# SPDX-License-Identifier: Apache-2.0
"""The store: real processes append at once and are killed, files are compacted meanwhile, and nothing is lost."""

import contextlib
import itertools
import json
import multiprocessing
import os
import random
import signal
import sys
import threading
from pathlib import Path

import polars as pl
import pytest

from firsttouch.errors import BadInput, RunFailed
from firsttouch.judge.samples_table import READ
from firsttouch.records import atomic_files, schema, store
from firsttouch.records.schema import Record

#: Processes that need not import these modules again. Polars is not one of them: it starts threads.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["hypothesis", "numpy", "pytest", "firsttouch.records.schema"])


def some(host, number, count=3):
    """Returns records of which none is like another."""
    return [
        Record(
            "latency",
            "random_latency",
            "ns",
            "lower",
            (float(number), float(number) + i),
            parameters={"bank": i, "pu_nodes": [0]},
            host=host,
            system="s",
            time=f"2026-01-01T00:00:00.{number % 1000:03d}+00:00",
        )
        for i in range(count)
    ]


def seen(folder):
    """Returns (host, number) of all appends, each as often as its first record is read."""
    rows = store.scan([folder]).filter(pl.col("parameters").str.contains('"bank": 0')).collect()
    return sorted((row["host"], row["minimum"]) for row in rows.iter_rows(named=True))


def test_what_is_appended_is_read(tmp_path):
    files = [store.append(tmp_path / "st", some("n1", i)) for i in range(3)]
    assert len({*files}) == 3
    assert store.append(tmp_path / "st", []) is None
    again = schema.from_frame(store.scan([tmp_path]).collect())
    assert len(again) == 9
    wanted = [json.dumps(r.to_dict(), sort_keys=True) for r in some("n1", 0)]
    assert [json.dumps(r.to_dict(), sort_keys=True) for r in again[:3]] == wanted
    assert store.scan([tmp_path]).select("host").collect().columns == ["host"]


@pytest.mark.parametrize("name", ["../x", "a/b", ".hidden", "", "ü" * 300])
def test_a_host_of_any_name_stays_in_its_folder(tmp_path, name):
    file = store.append(tmp_path / "st", some(name, 1))
    assert file.parent == tmp_path / "st"
    assert store.scan([tmp_path / "st"]).collect()["host"].unique().to_list() == [name]


def die_after(events):
    """Kill this process before the given number of further operations on files, as Python's audit hooks count."""
    left = itertools.count(events, -1)

    def count(event, _):
        if event.startswith(("open", "os.")) and event != "os.kill" and next(left) <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


def writer(folder, host, acknowledged, events):
    """Appends and says so after each one, until it is killed."""
    die_after(events)
    for number in itertools.count():
        store.append(folder, some(host, number))
        with acknowledged.open("a") as out:
            out.write(f"{number}\n")
            out.flush()


def test_writers_that_are_killed_lose_nothing_that_was_acknowledged(tmp_path):
    folder, rng = tmp_path / "st", random.Random(7)  # noqa: S311
    folder.mkdir()
    hosts = [f"n{i}" for i in range(4)]
    writers = [
        PROCESSES.Process(target=writer, args=(folder, h, tmp_path / h, rng.randint(60, 500))) for h in hosts
    ]
    for process in writers:
        process.start()
    failed, stop = [], threading.Event()

    def read():
        while not stop.is_set():
            try:
                pairs = seen(folder)
                assert len(pairs) == len({*pairs})
            except Exception as error:
                failed.append(error)
                return

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    for process in writers:
        store.compact(folder)
        process.join()
    stop.set()
    assert [process.exitcode for process in writers] == [-signal.SIGKILL] * len(writers)
    reader.join()
    assert not failed
    stored = seen(folder)
    assert len(stored) == len({*stored})
    for host in hosts:
        acknowledged = {(host, float(line)) for line in (tmp_path / host).read_text().split()}
        assert acknowledged
        # All that was acknowledged, and at most the one under way.
        of_host = {pair for pair in stored if pair[0] == host}
        assert acknowledged <= of_host
        assert len(of_host) <= len(acknowledged) + 1
    whole = store.scan([folder]).collect()
    assert len(whole) == 3 * len(stored)


def compactor(folder, events):
    """Compacts again and again, deleting at once what was joined, until it is killed.

    Without patience, another compaction may delete a file that this one is about to read.
    """
    die_after(events)
    while True:
        with contextlib.suppress(BadInput, FileNotFoundError):
            store.compact(folder, patience=0)


def until_killed(target, folder, events):
    """Run *target* on a folder in a process for each number of events, all at once, until all have been killed."""
    running = [PROCESSES.Process(target=target, args=(folder, number)) for number in events]
    for process in running:
        process.start()
    for process in running:
        process.join()
        assert process.exitcode == -signal.SIGKILL


def test_a_compaction_that_is_killed_loses_nothing_and_doubles_nothing(tmp_path):
    folder, rng = tmp_path / "st", random.Random(8)  # noqa: S311
    expected = []
    for turn in range(3):
        for number in range(30):
            store.append(folder, some(f"n{turn}", number))
            expected.append((f"n{turn}", float(number)))
        # Nothing is appended meanwhile: without patience, files that are being written are deleted.
        until_killed(compactor, folder, [rng.randint(10, 100) for _ in range(2)])
        assert seen(folder) == sorted(expected)
    store.compact(folder, patience=0)
    store.compact(folder, patience=0)
    assert seen(folder) == sorted(expected)
    assert len(list(folder.iterdir())) == 1


def test_two_writers_of_one_file_do_not_see_each_other(tmp_path):
    def slowly(out):
        out.write(b"first")
        store.put(tmp_path / "x", lambda other: other.write(b"second"))
        assert (tmp_path / "x").read_text() == "second"

    store.put(tmp_path / "x", slowly)
    assert [f.name for f in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x").read_text() == "first"


def test_joined_files_stay_for_those_who_are_reading_them(tmp_path):
    for number in range(4):
        store.append(tmp_path, some("n1", number))
    before = store.scan([tmp_path])
    done = store.compact(tmp_path)
    assert (done.joined, done.deleted) == (4, 0)
    assert len(before.collect()) == len(store.scan([tmp_path]).collect()) == 12
    assert store.compact(tmp_path).joined == 0
    assert store.compact(tmp_path, patience=0).deleted == 4
    assert len(store.scan([tmp_path]).collect()) == 12


def test_two_compactions_of_different_files_are_not_read_twice(tmp_path):
    # Two machines that see a file each later than the other.
    files = [store.append(tmp_path, some("n1", number)) for number in range(3)]
    for part in (files[:2], files[1:]):
        store._replace(tmp_path, part, {})
    assert seen(tmp_path) == [("n1", 0.0), ("n1", 1.0), ("n1", 2.0)]
    for _ in range(3):
        store.compact(tmp_path, patience=0)
        assert seen(tmp_path) == [("n1", 0.0), ("n1", 1.0), ("n1", 2.0)]
    assert len(list(tmp_path.iterdir())) == 1


#: The user id of another writer of a store.
OTHER = 65534
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


def forged(folder, names, records, owner=OTHER):
    """Write a joined file of *owner* that says it replaces *names*."""
    file = folder / f"{store.COMPACT}0123456789abcdef.parquet"
    schema.to_frame(records).write_parquet(file, metadata={store.REPLACES: json.dumps(sorted(names))})
    os.chown(file, owner, owner)
    return file


@root_only
@pytest.mark.parametrize("rows", [1, 50])
@pytest.mark.parametrize("compacted", [False, True])
def test_no_writer_of_a_sticky_store_hides_or_deletes_the_records_of_others(tmp_path, rows, compacted):
    tmp_path.chmod(0o1777)
    names = [store.append(tmp_path, some("n1", number)).name for number in range(3)]
    if compacted:
        names += [store.compact(tmp_path).file.name]
    strangers = [f"n9-1-{number}-0123abcd.parquet" for number in range(9)]
    evil = forged(tmp_path, [*names, *strangers], some("evil", 7, count=rows))
    appends = [("evil", 7.0), ("n1", 0.0), ("n1", 1.0), ("n1", 2.0)]
    assert sorted({*seen(tmp_path)}) == appends
    for _ in range(3):
        store.compact(tmp_path, patience=0)
        assert sorted({*seen(tmp_path)}) == appends
    assert not evil.exists()  # root has joined it


@root_only
def test_a_second_compaction_beside_a_file_that_may_replace_nothing_deletes_nothing(tmp_path):
    tmp_path.chmod(0o1777)
    names = [store.append(tmp_path, some("n1", number)).name for number in range(2)]
    forged(tmp_path, names, some("evil", 7))
    assert store.compact(tmp_path).joined == 3
    files = sorted(tmp_path.iterdir())
    assert store.compact(tmp_path) == store.Compacted(None, 0, 0)
    assert sorted(tmp_path.iterdir()) == files


@root_only
def test_a_writer_of_a_sticky_store_joins_the_files_of_this_user_only(tmp_path, monkeypatch):
    tmp_path.chmod(0o1777)
    files = [store.append(tmp_path, some(host, number)) for host in ("n1", "n2") for number in range(3)]
    for file in files[3:]:
        os.chown(file, OTHER, OTHER)
    partial = tmp_path / f"{atomic_files.PREFIX}of-root"
    partial.touch()
    appends = seen(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: OTHER)
        done = store.compact(tmp_path)
        os.chown(done.file, OTHER, OTHER)
        assert (done.joined, seen(tmp_path)) == (3, appends)
        assert store.compact(tmp_path, patience=0).deleted == 3
    assert partial.exists()
    assert {f.name for f in files[:3]} < {f.name for f in tmp_path.iterdir()}
    store.compact(tmp_path, patience=0)
    assert seen(tmp_path) == appends


def test_a_file_is_deleted_only_if_the_joined_file_has_its_records(tmp_path):
    files = [store.append(tmp_path, some("n1", number)) for number in range(2)]
    evil = forged(tmp_path, [f.name for f in files], some("n1", 0) + some("evil", 7), owner=os.geteuid())
    with pytest.raises(RunFailed, match=rf"{evil.name}: it does not have all records of {files[1].name}"):
        store.compact(tmp_path, patience=-1)
    assert files[1].exists()
    evil.unlink()
    assert ("n1", 1.0) in seen(tmp_path)


def test_a_joined_file_of_fewer_records_than_files_replaces_none(tmp_path):
    files = [store.append(tmp_path, some("n1", number)) for number in range(2)]
    forged(tmp_path, [f.name for f in files], some("evil", 7, count=1), owner=os.geteuid())
    assert seen(tmp_path) == [("evil", 7.0), ("n1", 0.0), ("n1", 1.0)]


def test_lines_tables_stores_and_reports_are_read_together(tmp_path):
    schema.append(tmp_path / "a" / "records.jsonl", some("n1", 1))
    schema.write_table(some("n2", 2), tmp_path / "records.parquet")
    store.append(tmp_path / "st", some("n3", 3))
    (tmp_path / "st" / "findings.parquet").write_bytes(b"no table of records")
    single = tmp_path / "single.parquet"
    schema.write_table(some("n4", 4), single)
    files = store.find([tmp_path, single])
    assert (len(files.tables), len(files.lines)) == (3, 1)
    assert store.scan([tmp_path, single]).collect()["host"].n_unique() == 4
    rows = sum(len(t) for t in store.batches(files, READ))
    assert rows == 12


def test_links_to_folders_are_followed_and_each_folder_is_read_once(tmp_path):
    store.append(tmp_path / "given" / "a", some("n1", 1))
    store.append(tmp_path / "elsewhere" / "b", some("n2", 2))
    schema.append(tmp_path / "elsewhere" / "records.jsonl", some("n3", 3))
    (tmp_path / "given" / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "given" / "again").symlink_to(tmp_path / "elsewhere" / "b")
    (tmp_path / "elsewhere" / "loop").symlink_to(tmp_path / "given")
    (tmp_path / "given" / "dangling").symlink_to(tmp_path / "nothing")
    files = store.find([tmp_path / "given", tmp_path / "elsewhere"])
    assert (len(files.tables), len(files.lines)) == (2, 1)
    assert sorted(store.scan([tmp_path / "given"]).collect()["host"].unique()) == ["n1", "n2", "n3"]


def test_a_table_with_another_name_in_a_store_is_read(tmp_path):
    store.append(tmp_path, some("n1", 1))
    renamed = store.append(tmp_path, some("n2", 2)).rename(tmp_path / "renamed.parquet")
    assert store.find([tmp_path]).tables.count(renamed) == 1
    assert sorted(store.scan([tmp_path]).collect()["host"].unique()) == ["n1", "n2"]
    # What has no records may be anything.
    renamed.write_bytes(b"")
    pl.DataFrame({"host": ["n3"]}).write_parquet(tmp_path / "other.parquet")
    assert len(store.find([tmp_path]).tables) == 1


def test_what_is_no_folder_is_no_store(tmp_path):
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "file").write_text("")
    for wrong in ("dangling", "file"):
        with pytest.raises(BadInput, match=f"{wrong}.*a store is a folder"):
            store.append(tmp_path / wrong, some("n1", 1))


def test_records_that_are_appended_twice_are_scanned_once(tmp_path):
    records = some("n1", 1)
    for _ in range(2):
        store.append(tmp_path, records)
    assert len(store.scan([tmp_path]).collect()) == len(records)


def test_what_is_no_table_of_records_is_named(tmp_path):
    bad = tmp_path / "bad.parquet"
    bad.write_bytes(b"PAR1")
    with pytest.raises(BadInput, match=r"bad\.parquet: not a table of records"):
        list(store.batches(store.find([bad]), READ))
    pl.DataFrame({"host": ["n1"]}).write_parquet(bad)
    with pytest.raises(BadInput, match=r"bad\.parquet: not a table of records: column \w+ is not there"):
        list(store.batches(store.find([bad]), READ))
    frame = schema.to_frame(some("n1", 1))
    for column, value in (("value", float("nan")), ("better", "fast"), ("status", "fine")):
        frame.with_columns(pl.lit(value).alias(column)).write_parquet(bad)
        with pytest.raises(BadInput, match=r"bad\.parquet: "):
            list(store.batches(store.find([bad]), READ))
    with pytest.raises(BadInput, match="no such file or folder"):
        store.find([tmp_path / "nowhere"])


@pytest.mark.parametrize("rows", [5_000, 600_000])
@pytest.mark.parametrize("others", [0, 3])
def test_more_rows_than_the_bytes_of_a_file_can_hold_are_refused_before_they_are_read(tmp_path, rows, others):
    for number in range(others):
        store.append(tmp_path, some("n1", number))
    bomb = tmp_path / "n2-1-1-0123abcd.parquet"
    pl.concat([schema.to_frame(some("n2", 1, count=1)).lazy()] * 1000).collect().write_parquet(tmp_path / "part")
    pl.scan_parquet([tmp_path / "part"] * (rows // 1000), glob=False).sink_parquet(bomb, compression_level=22)
    size = bomb.stat().st_size
    assert size < 4 * rows
    unread = []
    read = store.batches(store.find([tmp_path]), READ, unread.append)
    assert sum(map(len, read)) == 3 * others
    (wrong,) = map(str, unread)
    assert wrong == f"{bomb}: {rows} rows in {size} bytes: a table of records has 4 bytes or more per row"
    with pytest.raises(BadInput, match="bytes or more per row"):
        store.compact(tmp_path)


def test_a_disk_that_is_full_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(atomic_files, "sync", full)
    with pytest.raises(OSError, match="No space left"):
        store.append(tmp_path / "st", some("n1", 1))
    assert list((tmp_path / "st").iterdir()) == []


def test_what_a_store_did_not_write_is_not_joined(tmp_path):
    store.append(tmp_path, some("n1", 1))
    store.append(tmp_path, some("n1", 2))
    schema.write_table(some("n2", 2), tmp_path / "records.parquet")
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "findings.parquet")
    assert store.compact(tmp_path).joined == 2
    store.compact(tmp_path, patience=0)
    assert {"records.parquet", "findings.parquet"} < {f.name for f in tmp_path.iterdir()}
    assert store.scan([tmp_path]).collect()["host"].n_unique() == 2


@pytest.mark.parametrize("columns", [READ, ("time", "host")])
def test_small_tables_are_read_together_in_any_order_of_columns(tmp_path, columns):
    for host in range(5):
        store.append(tmp_path, some(f"n{host}", 1, count=4))
    (table,) = store.batches(store.find([tmp_path]), columns)
    assert (len(table), table.columns) == (20, list(columns))


def test_a_condition_leaves_tables_and_lines_out(tmp_path):
    for host in range(3):
        store.append(tmp_path, some(f"n{host}", 1, count=4))
    schema.append(tmp_path / "records.jsonl", [*some("n1", 2, count=2), *some("n2", 2, count=2)])
    parts = [*store.batches(store.find([tmp_path]), ["host"], where=pl.col("host") == "n1")]
    assert [host for part in parts for host in part["host"]].count("n1") == sum(map(len, parts)) == 6


def test_large_tables_are_read_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "ROWS", 5)
    store.append(tmp_path, some("n1", 1, count=12))
    parts = [len(t) for t in store.batches(store.find([tmp_path]), ["host"])]
    assert parts == [5, 5, 2]
    assert Path(tmp_path).is_dir()


def test_the_command_appends_and_joins(tmp_path, run_here):
    for number in range(2):
        file = tmp_path / f"{number}.jsonl"
        schema.append(file, some("n1", number))
        done = run_here("store", "append", tmp_path / "st", file)
        assert (done.returncode, "3 records" in done.stdout) == (0, True), done.stderr
    done = run_here("store", "--json", "compact", tmp_path / "st")
    assert json.loads(done.stdout)["joined"] == 2
    done = run_here("store", "compact", tmp_path / "st")
    assert (done.returncode, "nothing to join" in done.stdout) == (0, True), done.stderr
    assert len(store.scan([tmp_path / "st"]).collect()) == 6
    (tmp_path / "empty").mkdir()
    done = run_here("store", "append", tmp_path / "st", tmp_path / "empty")
    assert (done.returncode, "no record in" in done.stderr) == (2, True)
    assert run_here("store", "compact", tmp_path / "nowhere").returncode == 2
