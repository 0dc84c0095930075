# SPDX-License-Identifier: Apache-2.0
"""The inputs of reports and verdicts, read from stores of several files."""

import datetime

import numpy as np
import pytest
from msgspec.structs import replace

from factories.fleet_records import simulated
from firsttouch.records import drift, samples_table, store
from firsttouch.records.schema import Record
from firsttouch.report import inputs


def configuration(host, kernel, day):
    """Return a record of a host's configuration."""
    parameters = {"settings": {"kernel.release": kernel}}
    time = f"2026-01-{day:02d}T00:00:00Z"
    return Record(drift.CHECK, drift.METRIC, "1", "neither", (1.0,), parameters, system="s", host=host, time=time)


def test_a_configuration_between_those_of_another_table_is_a_change_and_so_is_the_way_back(tmp_path):
    steps = [("6.1", 1), ("6.1", 2), ("6.1", 5), ("6.1", 6), ("6.3", 9)]
    store.append(tmp_path, [configuration("n1", kernel, day) for kernel, day in steps])
    store.append(tmp_path, [configuration("n1", "6.2", 3)])
    read, unread = inputs.gather([tmp_path]), inputs.gather([tmp_path])
    read.samples()
    for gathered in (read, unread):
        newest = gathered.configurations()["n1"]
        assert [
            (datetime.datetime.fromtimestamp(at / 1000, datetime.UTC).day, text) for at, text in newest.changes
        ] == [
            (3, "kernel.release 6.1 -> 6.2"),
            (5, "kernel.release 6.2 -> 6.1"),
            (9, "kernel.release 6.1 -> 6.3"),
        ]


@pytest.mark.parametrize(("days", "some"), [(0.01, False), (3, True), (8, True), (30, True)])
def test_records_beyond_an_age_are_left_out_one_by_one(tmp_path, days, some):
    now = datetime.datetime.now(datetime.UTC)
    records = [
        replace(r, time=(now - datetime.timedelta(days=i % 9, hours=1)).isoformat(timespec="milliseconds"))
        for i, r in enumerate(simulated(3, hosts=4))
    ]
    store.append(tmp_path, records)
    samples = inputs.gather([tmp_path], days * 86400).samples()
    young = [r for i, r in enumerate(records) if i % 9 + 1 / 24 < days]
    expected = samples_table.of_records(young)
    assert bool(len(samples.value)) == some
    assert samples.hosts == expected.hosts
    for name in ("case", "host", "counts", "session_times", "value", "valid", "ordinal"):
        assert np.array_equal(getattr(samples, name), getattr(expected, name)), name


def test_the_same_records_in_a_store_and_in_lines_are_repetitions_once(tmp_path):
    records = [r for r in simulated(4, hosts=3) if r.host]
    for begin in range(0, len(records), 25):
        store.append(tmp_path / "st", records[begin : begin + 25])
    store.append(tmp_path / "again", records)
    samples, expected = inputs.gather([tmp_path]).samples(), samples_table.of_records(records)
    for name in ("case", "host", "counts", "session_times", "value", "valid", "judged", "ordinal"):
        assert np.array_equal(getattr(samples, name), getattr(expected, name)), name


def test_a_store_without_configurations_is_read_once(tmp_path, monkeypatch):
    store.append(tmp_path, [r for r in simulated(4, hosts=3) if r.check != "configuration"])
    read, files = store._Reader.parts, []
    monkeypatch.setattr(store._Reader, "parts", lambda self, given: files.extend(given) or read(self, given))
    gathered = inputs.gather([tmp_path])
    gathered.samples()
    assert gathered.configurations() == {}
    assert len(files) == len({*files}) == 2
