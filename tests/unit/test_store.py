# SPDX-License-Identifier: Apache-2.0
"""The store: real processes append at once and are killed, and nothing is lost."""

import datetime
import itertools
import json
import multiprocessing
import os
import random
import signal
import sys
import threading

import polars as pl
import pytest
from msgspec.structs import replace

from factories.stores import all_rows
from factories.users import OTHER, root_only
from firsttouch.errors import BadInput
from firsttouch.records import atomic_files, schema, store
from firsttouch.records.samples_table import READ
from firsttouch.records.schema import Record

#: Processes that need not import these modules again. Polars is not one of them: it starts threads.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["hypothesis", "numpy", "pytest", "firsttouch.records.schema"])


def some(host, number, count=3):
    """Returns records of which none is like another."""
    return [
        Record(
            *("latency", "random_latency", "ns", "lower", (float(number), float(number) + i)),
            parameters={"bank": i, "pu_nodes": [0]},
            host=host,
            system="s",
            time=f"2026-01-01T00:00:00.{number % 1000:03d}+00:00",
        )
        for i in range(count)
    ]


def lines(records):
    """Returns records as lines of a file."""
    return [json.dumps(r.to_dict(), sort_keys=True) for r in records]


def seen(folder):
    """Returns (host, number) of all appends, each as often as its first record is read."""
    rows = all_rows(folder).filter(pl.col("parameters").cast(pl.String).str.contains('"bank": 0'))
    return sorted((row["host"], min(row["samples"])) for row in rows.iter_rows(named=True))


def test_what_is_appended_is_read(tmp_path):
    files = [store.append(tmp_path / "st", some("n1", i)) for i in range(3)]
    assert len({*files}) == 3
    assert store.append(tmp_path / "st", []) is None
    again = schema.from_frame(all_rows(tmp_path))
    assert len(again) == 9
    assert lines(again[:3]) in [lines(some("n1", i)) for i in range(3)]
    assert all_rows(tmp_path).select("host").columns == ["host"]


def test_the_two_tables_have_sessions_and_values(tmp_path):
    def at(minute, check="latency", metric="random_latency", **fields):
        return Record(
            *(check, metric, "1", "neither", fields.pop("samples", (1.0,))),
            **{"host": "n1", "system": "s", "software": {"linux": "6"}, **fields},
            time=f"2026-01-01T00:{minute:02d}:00.000+00:00",
        )

    def settings(minute, pages):
        return at(minute, "configuration", "settings", parameters={"settings": {"pages": pages}})

    records = [at(0), settings(1, "always"), at(2, samples=(1.0, 3.0)), at(3), settings(4, "never"), at(5)]
    records += [at(6, software={"linux": "6", "bwa": "1"}), at(7, host="n2", status="invalid", reason="no")]
    file = store.append(tmp_path, records)
    sessions, values = pl.read_parquet(file), pl.read_parquet(store.values_of(file))
    assert sessions.select("host", "software", "configuration", "values").rows() == [
        ("n1", '{"linux": "6"}', '{"settings": {"pages": "always"}}', 4),
        ("n1", '{"linux": "6"}', '{"settings": {"pages": "never"}}', 2),
        ("n1", '{"bwa": "1", "linux": "6"}', '{"settings": {"pages": "never"}}', 1),
        ("n2", '{"linux": "6"}', "{}", 1),
    ]
    latency, configuration = (
        f'{{"check": "{check}", "metric": "{metric}", "parameters": {{}}, "unit": "1", "better": "neither"}}'
        for check, metric in (("latency", "random_latency"), ("configuration", "settings"))
    )
    first = values.filter(pl.col("session") == sessions["session"][0])
    # Sorted by case: this is faster to read.
    assert first.select("case", "value", "samples").rows() == [
        (configuration, 1.0, None),
        (latency, 1.0, None),
        (latency, 2.0, [1.0, 3.0]),
        (latency, 1.0, None),
    ]
    assert values["invalid"].to_list() == [None] * 7 + ["no"]
    again = schema.from_frame(all_rows(tmp_path).sort("time"))
    assert lines(again) == lines(records)


def test_sessions_end_with_a_gap_and_are_left_out_by_their_age(tmp_path):
    hours = (0, 0.5, 1.4, 2.5)
    begin = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    times = [begin + datetime.timedelta(hours=hour) for hour in hours]
    records = [replace(some("n1", 0)[0], time=t.isoformat()) for t in times]
    file = store.append(tmp_path, records)
    assert pl.read_parquet(file)["values"].to_list() == [3, 1]
    sources = store.find([tmp_path])
    assert [sum(len(part.values) for part in store.tables(sources, since=t)) for t in times] == [4, 4, 4, 1]


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
        PROCESSES.Process(target=writer, args=(folder, h, tmp_path / h, rng.randint(40, 160))) for h in hosts
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
    whole = all_rows(folder)
    assert len(whole) == 3 * len(stored)


def test_what_is_appended_twice_is_stored_once(tmp_path):
    records = [*some("n1", 1), *some("n2", 2)]
    file = store.append(tmp_path, records)
    before = [(f.name, f.stat().st_ino) for f in sorted(tmp_path.iterdir())]
    assert store.append(tmp_path, reversed(records)) == file
    assert [(f.name, f.stat().st_ino) for f in sorted(tmp_path.iterdir())] == before
    # A session that is appended alone is the same as in the other file.
    store.append(tmp_path, some("n2", 2))
    assert len(list(tmp_path.iterdir())) == 4
    assert sum(len(part.values) for part in store.tables(store.find([tmp_path]))) == 6


def forged(folder, file, owner=OTHER):
    """Write files of *owner* with the session of *file*, which have another host and other values."""
    new = folder / "sessions-0123456789abcdef.parquet"
    lie = {"host": pl.lit("evil").cast(pl.Categorical)}
    pl.read_parquet(file).with_columns(**lie).write_parquet(new)
    pl.read_parquet(store.values_of(file)).with_columns(value=7.0).write_parquet(store.values_of(new))
    for each in (new, store.values_of(new)):
        os.chown(each, owner, owner)
    return new


@root_only
def test_no_writer_of_a_sticky_store_hides_the_records_of_others(tmp_path):
    tmp_path.chmod(0o1777)
    files = [store.append(tmp_path, some("n1", number)) for number in range(3)]
    forged(tmp_path, files[1])
    assert [append for append in seen(tmp_path) if append[0] == "n1"] == [("n1", 0.0), ("n1", 1.0), ("n1", 2.0)]


@root_only
def test_a_name_that_another_user_has_taken_is_not_used(tmp_path):
    tmp_path.chmod(0o1777)
    file = store.append(tmp_path, some("n1", 1))
    store.values_of(file).write_bytes(b"PAR1")
    for each in (file, store.values_of(file)):
        os.chown(each, OTHER, OTHER)
    assert store.append(tmp_path, some("n1", 1)) != file
    unread = []
    rows = [len(part.values) for part in store.tables(store.find([tmp_path]), unread.append)]
    assert (sum(rows), len(unread)) == (3, 1)


def test_what_a_killed_writer_has_left_counts_for_nothing(tmp_path):
    store.append(tmp_path, some("n1", 1))
    store.append(tmp_path, some("n2", 2)).unlink()
    (tmp_path / f"{atomic_files.PREFIX}x").touch()
    assert seen(tmp_path) == [("n1", 1.0)]


def test_lines_and_stores_are_read_together(tmp_path):
    schema.append(tmp_path / "a" / "records.jsonl", some("n1", 1))
    store.append(tmp_path / "st", some("n3", 3))
    schema.write_table(some("n2", 2), tmp_path / "st" / "records.parquet")
    (tmp_path / "st" / "findings.parquet").write_bytes(b"no table of records")
    files = store.find([tmp_path])
    assert (len(files.sessions), len(files.lines)) == (1, 1)
    assert sorted(all_rows(tmp_path)["host"].unique()) == ["n1", "n3"]
    assert sum(len(part.values) for part in store.tables(files)) == 6
    with pytest.raises(BadInput, match=r"records\.parquet: "):
        store.find([tmp_path / "st" / "records.parquet"])


def test_all_files_of_records_in_a_folder_are_read_and_no_journals(tmp_path):
    for number, name in enumerate(("records.jsonl", "n2.jsonl", "task.0.jsonl")):
        schema.append(tmp_path / "a" / name, some(f"n{number}", 1))
    (tmp_path / "a" / "actions.jsonl").write_text(
        '{"id": "1", "what": "hold", "reason": "\\"check\\" \\"metric\\""}\n'
    )
    (tmp_path / "a" / "link.jsonl").symlink_to("/proc/self/status")
    ignored = []
    files = store.find([tmp_path], ignored.append)
    assert [file.name for file in files.lines] == ["n2.jsonl", "records.jsonl", "task.0.jsonl"]
    assert [unread.error.file for unread in ignored] == [tmp_path / "a" / "link.jsonl"]
    damaged = tmp_path / "a" / "n2.jsonl"
    damaged.write_text("{\n" + damaged.read_text())
    unread = []
    tables = list(store.tables(files, unread.append))
    assert [*map(str, unread)] == [f"{damaged}:1: not JSON: Expecting property name enclosed in double quotes"]
    assert sorted({host for table in tables for host in table.sessions["host"]}) == ["n0", "n1", "n2"]


def test_links_to_folders_are_followed_and_each_folder_is_read_once(tmp_path):
    store.append(tmp_path / "given" / "a", some("n1", 1))
    store.append(tmp_path / "elsewhere" / "b", some("n2", 2))
    schema.append(tmp_path / "elsewhere" / "records.jsonl", some("n3", 3))
    (tmp_path / "given" / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "given" / "again").symlink_to(tmp_path / "elsewhere" / "b")
    (tmp_path / "elsewhere" / "loop").symlink_to(tmp_path / "given")
    (tmp_path / "given" / "dangling").symlink_to(tmp_path / "nothing")
    files = store.find([tmp_path / "given", tmp_path / "elsewhere"])
    assert (len(files.sessions), len(files.lines)) == (2, 1)
    assert sorted(all_rows(tmp_path / "given")["host"].unique()) == ["n1", "n2", "n3"]


def test_what_is_no_folder_is_no_store(tmp_path):
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "file").write_text("")
    for wrong in ("dangling", "file"):
        with pytest.raises(BadInput, match=f"{wrong}.*folder"):
            store.append(tmp_path / wrong, some("n1", 1))


def test_what_is_no_table_of_a_store_is_named(tmp_path):
    file = store.append(tmp_path, some("n1", 1))
    for each in (file, store.values_of(file)):
        good = pl.read_parquet(each)
        each.write_bytes(b"PAR1")
        with pytest.raises(BadInput, match=rf"{each.name}: .*table"):
            list(store.tables(store.find([tmp_path])))
        good.drop("session").write_parquet(each)
        with pytest.raises(BadInput, match=rf"{each.name}: .*column session "):
            list(store.tables(store.find([tmp_path])))
        good.write_parquet(each)
    with pytest.raises(BadInput, match="no such file or folder"):
        store.find([tmp_path / "nowhere"])


@pytest.mark.parametrize("rows", [20_000, 600_000])
@pytest.mark.parametrize("others", [0, 3])
def test_more_rows_than_the_bytes_of_a_file_can_hold_are_refused_before_they_are_read(tmp_path, rows, others):
    for number in range(others):
        store.append(tmp_path, some("n1", number))
    bomb = store.values_of(store.append(tmp_path, some("n2", 1, count=1)))
    pl.read_parquet(bomb)[[0] * rows].write_parquet(bomb, compression_level=22)
    size = bomb.stat().st_size
    assert size < rows
    unread = []
    read = store.tables(store.find([tmp_path]), unread.append, columns=READ)
    assert sum(len(part.values) for part in read) == 3 * others
    (wrong,) = map(str, unread)
    assert wrong == f"{bomb}: {rows} rows in {size} bytes: a store has a byte or more per row"


def test_other_hosts_are_not_read(tmp_path):
    for host in range(3):
        store.append(tmp_path, some(f"n{host}", 1, count=4))
    store.append(tmp_path, [*some("n1", 2, count=2), *some("n2", 2, count=2)])
    parts = store.tables(store.find([tmp_path]), hosts=["n1"])
    assert [host for part in parts for host in part.records(["host"])["host"]] == ["n1"] * 6


def test_a_store_is_joined_by_appending_it_to_a_new_one(tmp_path, run_here):
    old, new = tmp_path / "old", tmp_path / "new"
    settings = Record("configuration", "settings", "1", "neither", (1.0,), parameters={"settings": {"a": "b"}})
    for number in range(2):
        file = tmp_path / f"{number}.jsonl"
        configured = replace(settings, host="n1", system="s", time=f"2026-01-0{number + 2}T00:00:00+00:00")
        schema.append(file, [*some("n1", number), configured])
        done = run_here("store", "append", old, file)
        assert (done.returncode, "4 records" in done.stdout) == (0, True), done.stderr
    done = run_here("store", "append", new, old, "--json")
    assert json.loads(done.stdout)["records"] == len(all_rows(old)) == 8
    assert len(list(new.iterdir())) == 2
    # The sessions are the same: what is appended again, and what arrived meanwhile, counts once.
    store.append(old, some("n2", 7))
    done = run_here("store", "append", new, old)
    assert len(all_rows(new)) == 11, done.stderr
    (tmp_path / "empty").mkdir()
    done = run_here("store", "append", new, tmp_path / "empty")
    assert (done.returncode, "no record in" in done.stderr) == (2, True)
