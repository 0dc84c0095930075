# SPDX-License-Identifier: Apache-2.0
"""Summaries of tables: verdicts, reports and histories are those of the records, whatever happens to the files."""

import datetime
import itertools
import json
import os
import random
import re
import sys
import zipfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from msgspec.structs import replace
from test_judging_columns import simulated
from test_verdict import document_of

from firsttouch import cli
from firsttouch.campaign import inputs
from firsttouch.judge import case_judge, drift, findings, history, reduced, samples_table, summaries
from firsttouch.judge.judging import Undescribed, judged
from firsttouch.judge.samples_table import SamplesTable
from firsttouch.records import catalogue, store
from firsttouch.records.schema import Record
from firsttouch.report.fleet.history import History, of_fleet
from firsttouch.systems.definition import load

ROOT_READS_ALL = os.geteuid() == 0
#: Modules that take part in making a summary, and do not decide what it says.
BESIDE = {
    "benchmarks/reframe_run.py",
    "campaign/inputs.py",
    "campaign/state.py",
    "clock.py",
    "documents.py",
    "paths.py",
    "records/atomic_files.py",
    "tools.py",
}


@pytest.fixture(autouse=True)
def every_table(monkeypatch):
    """Let small tables have summaries, too."""
    monkeypatch.setattr(summaries, "LEAST", 1)


def configuration(host, board, day):
    """Return a record of a host's configuration."""
    parameters = {"parts": {"board": board}, "settings": {"cpu.model": "x"}}
    time = f"2026-01-{day:02d}T00:00:00Z"
    return Record(drift.CHECK, drift.METRIC, "1", "neither", (1.0,), parameters, system="s", host=host, time=time)


def filled(folder, seed, hosts=6):
    """Fill a store with several tables of a random fleet of two systems, with configurations."""
    rng = random.Random(seed)  # noqa: S311
    records = [*simulated(seed, hosts=hosts), configuration("n1", "a", 1), configuration("n1", "b", 3)]
    records = [replace(r, system="t") if r.host == "n3" else r for r in records]
    rng.shuffle(records)
    while records:
        count = rng.randint(1, 40)
        store.append(folder, records[:count])
        records = records[count:]


def same(table: SamplesTable, other: SamplesTable):
    """Assert that two tables are equal, to the last number and text."""
    for name in SamplesTable.__struct_fields__:
        ours, theirs = getattr(table, name), getattr(other, name)
        assert np.array_equal(ours, theirs) if isinstance(ours, np.ndarray) else ours == theirs, name


def without_summaries(folder, **options):
    """Return the samples of the records of a store."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(summaries, "LEAST", 1 << 60)
        return inputs.gather([folder]).samples(**options)


def unreadable(*_):
    """Fail: a table is read that has a summary."""
    raise AssertionError("records were read")


def reading_no_records():
    """Let the reading of records fail."""
    patch = pytest.MonkeyPatch.context()
    context = patch.__enter__()
    context.setattr(store, "batches", lambda sources, *_: unreadable() if sources.tables else iter(()))
    return patch


@pytest.mark.parametrize(("seed", "system"), [(1, None), (2, "s"), (3, None), (4, "s")])
def test_samples_and_configurations_of_summaries_are_those_of_the_records(tmp_path, seed, system):
    filled(tmp_path, seed)
    expected = without_summaries(tmp_path, system=system)
    first = inputs.gather([tmp_path])
    same(first.samples(system), expected)
    again = inputs.gather([tmp_path])
    patch = reading_no_records()
    try:
        same(again.samples(system), expected)
        assert again.systems == first.systems
        assert again.configurations() == first.configurations()
        assert inputs.gather([tmp_path]).configurations() == first.configurations()
    finally:
        patch.__exit__(None, None, None)


def test_a_configuration_between_those_of_another_table_is_a_change_and_so_is_the_way_back(tmp_path):
    def of(kernel, day):
        return replace(configuration("n1", "a", day), parameters={"settings": {"kernel.release": kernel}})

    store.append(tmp_path, [of("6.1", 1), of("6.1", 2), of("6.1", 5), of("6.1", 6), of("6.3", 9)])
    store.append(tmp_path, [of("6.2", 3)])
    for gathered in (inputs.gather([tmp_path]), inputs.gather([tmp_path])):
        gathered.samples()  # which writes the summaries at first
        for configurations in (gathered.configurations(), inputs.gather([tmp_path]).configurations()):
            steps = [(c.time // 86_400_000 - 20_453, c.settings["kernel.release"]) for c in configurations["n1"]]
            assert steps == [(1, "6.1"), (3, "6.2"), (5, "6.1"), (9, "6.3")]


@pytest.fixture
def small_pieces(monkeypatch):
    """Let each case be a piece of a table, and judge a few hosts as many are judged."""
    for module in (samples_table, history):
        monkeypatch.setattr(module, "PIECE", 1)
    monkeypatch.setattr(reduced, "_PART", 1)
    monkeypatch.setattr(case_judge, "_POOLED_HOSTS", 0)
    monkeypatch.setattr(findings, "_AT_ONCE", 2)


@pytest.mark.parametrize(("seed", "most_open"), [(0, 0), (1, 2), (2, 1000)])
@pytest.mark.usefixtures("small_pieces")
def test_pieces_of_a_table_are_the_table(tmp_path, monkeypatch, seed, most_open):
    monkeypatch.setattr(inputs, "_MOST_OPEN", most_open)
    filled(tmp_path, seed)
    whole = without_summaries(tmp_path)
    for _ in range(2):
        joined = inputs.gather([tmp_path]).joined()
        numbers, pieces = zip(*joined.pieces(), strict=True)
        assert [number for of_piece in numbers for number in of_piece] == [*range(len(whole.cases))]
        assert len(pieces) == len(whole.cases)
        for name in ("case", "host", "counts", "time", "value", "valid", "judged", "sessions_of_rows"):
            assert np.array_equal(np.concatenate([getattr(p, name) for p in pieces]), getattr(whole, name)), name
        names = {*whole.hosts[1:4]}
        same(joined.of_hosts(names), whole.of_hosts(names))
        for host in whole.hosts:  # which may lack cases
            same(joined.of_hosts({host}), whole.of_hosts({host}))
        parts = whole.by_system("none")
        assert [*joined.by_system("none")] == [*parts]
        for system, part in joined.by_system("none").items():
            same(part.table(), parts[system])
            same(part.of_hosts(names), parts[system].of_hosts(names))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.usefixtures("small_pieces")
def test_pieces_are_judged_as_the_table_is(tmp_path, seed):
    filled(tmp_path, seed, hosts=12)
    document_of(tmp_path)
    systems = {"s": load(str(tmp_path / "s.yaml")), "t": Undescribed("t")}
    whole, gathered = without_summaries(tmp_path).by_system(), inputs.gather([tmp_path])
    for name, part in gathered.joined().by_system().items():
        votes = history.Votes(part)
        ours = judged(part, systems[name], configurations=gathered.newest_configurations, also=votes.add)
        theirs = judged(whole[name], systems[name], configurations=gathered.newest_configurations)
        assert ours.table.equals(theirs.table)
        assert np.array_equal(ours.counts_now, theirs.counts_now)
        assert np.array_equal(ours.disturbed, theirs.disturbed)
        assert np.array_equal(ours.overdue, theirs.overdue)
        assert ours.notes() == theirs.notes()
        assert [ours.of(h).to_dict() for h in ours.hosts] == [theirs.of(h).to_dict() for h in theirs.hosts]
        assert votes.changes() == history.changes(part) == history.changes(part.table())


@pytest.mark.usefixtures("small_pieces")
def test_what_changed_and_what_is_overdue_is_read_in_pieces(tmp_path):
    """From the sixth of twelve days on a host is slower, and another one lacks a metric."""
    rng = random.Random(7)  # noqa: S311
    for day in range(1, 13):
        records = []
        for host, bank in itertools.product(range(8), range(2)):
            level = 80 if (host, bank) == (2, 0) and day > 5 else 100
            if (host, bank) != (5, 1) or day <= 5:
                place = {"program": "probe", "kernel": "copy", "pu_nodes": [0], "bank": bank}
                values = (level * (1 + rng.gauss(0, 0.003)),)
                about = {"parameters": place, "system": "s", "host": f"n{host}"}
                time = f"2026-01-{day:02d}T00:0{bank}:00Z"
                records.append(Record("bandwidth", "copy_bandwidth", "GB/s", "higher", values, **about, time=time))
        store.append(tmp_path, records)
    whole, (part,) = without_summaries(tmp_path), inputs.gather([tmp_path]).joined().by_system().values()
    ours, theirs = judged(part, Undescribed("s")), judged(whole, Undescribed("s"))
    assert len(ours.overdue) == 1
    assert np.array_equal(ours.overdue, theirs.overdue)
    assert [ours.of(h).to_dict() for h in ours.hosts] == [theirs.of(h).to_dict() for h in theirs.hosts]
    (change,) = changes = history.changes(part)
    assert change.hosts == ("n2",)
    assert changes == history.changes(whole)
    drawn, expected = (of_fleet(table, History(changes)).blocks[-1] for table in (part, whole))
    assert drawn == expected


@pytest.mark.parametrize("command", [["validate", "--system", "s", "--json"], ["report"], ["fleet", "history"]])
def test_output_of_commands_is_that_of_the_records(tmp_path, monkeypatch, capsys, command):
    folder = tmp_path / "store"
    filled(folder, 5, hosts=16)
    (tmp_path / "systems").mkdir()
    document_of(tmp_path / "systems")
    monkeypatch.setenv("FIRSTTOUCH_SYSTEMS", str(tmp_path / "systems"))

    def output(name):
        where = ["-o", str(tmp_path / name)] if command == ["report"] else []
        status = cli.main([*command, str(folder), *where])
        texts = [file.read_text() for file in sorted((tmp_path / name).glob("*.md"))]
        lines = [line for text in texts for line in text.splitlines() if not line.startswith("Generated ")]
        out, err = capsys.readouterr()
        return status, out.replace(name, ""), err.replace(name, ""), lines

    with monkeypatch.context() as patch:
        patch.setattr(summaries, "LEAST", 1 << 60)
        expected = output("out-0")
    assert expected[0] in {0, 1}
    assert not (folder / summaries.FOLDER).exists()
    assert output("out-1") == expected
    assert len([*(folder / summaries.FOLDER).iterdir()]) == len([*folder.glob("*.parquet")])
    assert output("out-2") == expected


class TestFitting:
    """A summary counts only if it fits its table."""

    @pytest.fixture
    def table(self, tmp_path):
        """Return a table with a summary."""
        file = store.append(tmp_path, simulated(3, hosts=4))
        inputs.gather([tmp_path]).samples()
        assert summaries.facts(file)
        return file

    def test_a_table_that_was_changed_in_place_is_read_again(self, table):
        frame = pl.read_parquet(table)
        before = table.stat()
        others = frame.with_columns(pl.col("value") * 2, samples=pl.col("samples").list.eval(pl.element() * 2))
        others.write_parquet(table)
        os.utime(table, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert summaries.facts(table) is None
        samples = inputs.gather([table.parent]).samples()
        same(samples, without_summaries(table.parent))
        assert summaries.facts(table)

    @pytest.mark.parametrize(
        "damage", ["empty", "half", "a bit", "no json", "not a zip", "a folder", "a link to nowhere", "a pipe"]
    )
    def test_a_damaged_summary_is_written_anew(self, table, damage):
        file = summaries.path_of(table)
        content = bytearray(file.read_bytes())
        if damage == "a bit":
            content[len(content) // 2] ^= 1
        contents = {"empty": b"", "half": content[: len(content) // 2], "a bit": content, "not a zip": b"{}" * 99}
        file.unlink()
        if damage == "a folder":
            file.mkdir()
        elif damage == "a pipe":
            os.mkfifo(file)
        elif damage == "a link to nowhere":
            file.symlink_to("nowhere")
        elif damage == "no json":
            with zipfile.ZipFile(file, "w") as out:
                out.writestr("facts.json", "[1")
        else:
            file.write_bytes(contents[damage])
        samples = inputs.gather([table.parent]).samples()
        same(samples, without_summaries(table.parent))
        assert summaries.facts(table) or damage == "a folder"

    def test_no_changed_bit_of_the_directory_of_a_summary_changes_the_samples(self, table):
        file = summaries.path_of(table)
        content, expected = file.read_bytes(), without_summaries(table.parent)
        directory = zipfile.ZipFile(file).start_dir
        entries = [match.start() for match in re.finditer(b"PK\x01\x02", content) if match.start() >= directory]
        # Flags (encrypted), method (deflated), and lengths of what follows, which hide the next entry.
        bits = {8: (1, 8), 10: (1, 8), 31: (1, 2), 33: (1, 64, 128), 32: (1, 16, 32, 64)}
        for entry, (place, masks) in itertools.product(entries, bits.items()):
            for mask in masks:
                damaged = bytearray(content)
                damaged[entry + place] ^= mask
                file.write_bytes(damaged)
                samples = inputs.gather([table.parent]).samples()
                same(samples, expected)

    def test_one_of_another_version_does_not_count(self, table, monkeypatch):
        monkeypatch.setattr(summaries, "_version", lambda: "later")
        assert summaries.facts(table) is None
        inputs.gather([table.parent]).samples()
        assert summaries.facts(table)

    def test_the_source_of_all_that_decides_its_content_tells_its_version(self, table):
        called = set()
        package = Path(summaries.__file__).parents[1]

        def note(frame, event, _):
            path = Path(frame.f_code.co_filename)
            if event == "call" and package in path.parents:
                called.add(str(path.relative_to(package)))

        summaries.path_of(table).unlink()
        catalogue.catalogue.cache_clear()
        sys.setprofile(note)
        try:
            inputs.gather([table.parent]).summarise()
        finally:
            sys.setprofile(None)
        assert summaries.facts(table)
        assert called - BESIDE <= {*summaries.SOURCES}

    @pytest.mark.skipif(not ROOT_READS_ALL, reason="only root can give a file to somebody else")
    def test_one_of_a_stranger_does_not_count(self, table):
        os.chown(summaries.path_of(table), 12345, -1)
        assert summaries.facts(table) is None
        os.chown(table, 12345, -1)  # which changes the table
        assert summaries.facts(table) is None
        inputs.gather([table.parent]).samples()
        assert summaries.facts(table)

    def test_a_store_that_cannot_be_written_is_read(self, tmp_path):
        file = store.append(tmp_path, simulated(3, hosts=4))
        (tmp_path / summaries.FOLDER).write_text("in the way")
        same(inputs.gather([tmp_path]).samples(), without_summaries(tmp_path))
        assert summaries.facts(file) is None

    def test_nothing_is_written_or_deleted_where_a_link_points_to(self, tmp_path):
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        for name in ("passwd", f"old.parquet{summaries.SUFFIX}"):
            (elsewhere / name).write_text("kept")
        store.append(tmp_path / "store", simulated(3, hosts=4))
        (tmp_path / "store" / summaries.FOLDER).symlink_to(elsewhere)
        assert cli.main(["store", "compact", str(tmp_path / "store")]) == 0
        assert sorted(f.name for f in elsewhere.iterdir()) == [f"old.parquet{summaries.SUFFIX}", "passwd"]

    def test_only_summaries_are_deleted(self, table):
        other = table.parent / summaries.FOLDER / "notes.txt"
        other.write_text("mine")
        table.unlink()
        summaries.prune(table.parent)
        assert [f.name for f in other.parent.iterdir()] == [other.name]

    def test_a_full_disk_leaves_no_summary_and_no_part_of_one(self, tmp_path, monkeypatch):
        def full(*_):
            raise OSError(28, os.strerror(28))

        store.append(tmp_path, simulated(3, hosts=4))
        monkeypatch.setattr(zipfile.ZipFile, "writestr", full)
        same(inputs.gather([tmp_path]).samples(), without_summaries(tmp_path))
        assert [*(tmp_path / summaries.FOLDER).iterdir()] == []

    def test_a_table_without_a_row_has_a_summary_without_one(self, tmp_path):
        file = store.append(tmp_path, simulated(3, hosts=1))
        pl.read_parquet(file).clear().write_parquet(file)
        for _ in range(2):
            assert inputs.gather([tmp_path]).samples().hosts == []
            assert summaries.facts(file) == summaries.Facts([], [], {}, 0, 0)

    def test_a_table_with_damaged_rows_has_none_and_is_reported_each_time(self, tmp_path):
        file = store.append(tmp_path, simulated(3, hosts=4))
        frame = pl.read_parquet(file)
        frame.with_columns(unit=pl.when(pl.int_range(pl.len()) == 3).then(None).otherwise("unit")).write_parquet(
            file
        )
        texts = []
        for _ in range(2):
            gathered = inputs.gather([tmp_path])
            gathered.samples()
            texts.append([*gathered.unread])
        assert texts[0] == texts[1] != []
        assert summaries.facts(file) is None

    def test_compaction_summarises_and_deletes_summaries_without_tables(self, tmp_path, capsys):
        filled(tmp_path, 4)
        inputs.gather([tmp_path]).samples()
        old = {f.name for f in (tmp_path / summaries.FOLDER).iterdir()}
        assert cli.main(["store", "compact", str(tmp_path), "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["summarised"] == 1
        for file in tmp_path.glob("*.parquet"):
            if not file.name.startswith(store.COMPACT):
                file.unlink()
        assert cli.main(["store", "compact", str(tmp_path)]) == 0
        (left,) = (f.name for f in (tmp_path / summaries.FOLDER).iterdir())
        assert left not in old


class TestTime:
    """Records that are too old, or of the future, are left out one by one."""

    @pytest.mark.parametrize("shift", [-1, 0, 5])
    def test_the_present_decides_whether_records_are_of_the_future(self, tmp_path, shift):
        now = datetime.datetime.now(datetime.UTC)
        records = [
            replace(
                r,
                time=(now + datetime.timedelta(days=shift, minutes=i % 7 - 30)).isoformat(timespec="milliseconds"),
            )
            for i, r in enumerate(simulated(3, hosts=4))
        ]
        store.append(tmp_path, records)
        for _ in range(2):
            gathered, expected = inputs.gather([tmp_path]), inputs.gather([tmp_path])
            samples = gathered.samples()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(summaries, "LEAST", 1 << 60)
                same(samples, expected.samples())
            assert gathered.ahead().keys() == expected.ahead().keys()
            assert bool(gathered.ahead()) == (shift > 0)

    def test_max_age_cuts_a_table_in_two(self, tmp_path):
        now = datetime.datetime.now(datetime.UTC)
        records = [
            replace(r, time=(now - datetime.timedelta(days=i % 9, hours=1)).isoformat(timespec="milliseconds"))
            for i, r in enumerate(simulated(3, hosts=4))
        ]
        store.append(tmp_path, records)
        inputs.gather([tmp_path]).samples()
        for days in (0.01, 3, 8, 30):
            samples = inputs.gather([tmp_path], days * 86400).samples()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(summaries, "LEAST", 1 << 60)
                same(samples, inputs.gather([tmp_path], days * 86400).samples())
            assert (len(samples.value) == 0) == (days < 0.1)
