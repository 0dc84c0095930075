# SPDX-License-Identifier: Apache-2.0
"""Records: writing and reading them, and files with other content."""

import datetime
import json
import math

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttouch.errors import BadInput
from firsttouch.records import samples_table, schema, store
from firsttouch.records.schema import Record
from firsttouch.units import UNITS

# A median that is almost 0 would leave no finite spread.
FINITE = st.floats(allow_nan=False, min_value=-1e9, max_value=1e9).map(lambda v: v if abs(v) > 1e-50 else 0.0)


def record(**other):
    fields = {"check": "latency", "metric": "random_latency", "unit": "ns", "better": "lower"}
    return Record(**{**fields, "samples": (3.0, 1.0, 2.0), **other})


def test_derived_figures():
    measured = record()
    assert (measured.value, measured.repetitions, measured.spread) == (2.0, 3, 1.0)
    assert record(samples=(5.0,)).spread == 0.0
    assert record(samples=(-1.0, 0.0, 1.0), unit="%").spread == 0.0
    assert measured.host
    assert measured.time.endswith("+00:00")


@pytest.mark.parametrize("samples", [(), (math.nan,), (1.0, math.inf), (-math.inf,), (1e308,)])
def test_no_record_without_a_finite_sample(samples):
    with pytest.raises(BadInput, match=r"latency/random_latency.*not finite or too large"):
        record(samples=samples)


@pytest.mark.parametrize("unit", ["1", *UNITS])
def test_no_amount_is_negative(unit):
    with pytest.raises(BadInput, match=r"latency/random_latency: .*\(2\.0, -1\.0\)"):
        record(samples=(2.0, -1.0), unit=unit)
    assert record(samples=(2.0, 0.0), unit=unit).value == 1


def test_no_spread_is_infinite():
    with pytest.raises(BadInput, match="no finite spread"):
        record(samples=(1.0, 5e-324, 5e-324))


#: Names of parameters of any type.
NAMES = st.text(max_size=5).filter(lambda name: name not in schema.parameters_form().__struct_fields__)


@given(st.lists(FINITE, min_size=1, max_size=9), st.dictionaries(NAMES, st.integers() | st.text()))
def test_there_and_back(samples, parameters):
    measured = record(samples=tuple(samples), parameters=parameters, unit="%")
    text = json.dumps(measured.to_dict())
    assert json.dumps(schema.from_dict(json.loads(text)).to_dict()) == text


def test_the_environment_says_whose_records_they_are(monkeypatch):
    monkeypatch.setenv("FIRSTTOUCH_SYSTEM", "amd-opteron")
    monkeypatch.setenv("FIRSTTOUCH_PARTITION", "exclusive")
    assert (record().system, record().partition) == ("amd-opteron", "exclusive")


def test_append_and_read(tmp_path):
    file = tmp_path / "new" / "records.jsonl"
    ones = [record(), record(metric="other", samples=(1,))]
    schema.append(file, ones[:1])
    schema.append(file, ones[1:])
    assert json.dumps([r.to_dict() for r in schema.read(file)]) == json.dumps([r.to_dict() for r in ones])
    assert [r.metric for r in schema.collect([tmp_path, file])] == ["random_latency", "other"] * 2


def test_the_table(tmp_path):
    file = tmp_path / "records.parquet"
    schema.write_table([record(parameters={"bank": 0}), record(parameters={"kernel": "copy"})], file)
    assert [f.name for f in tmp_path.iterdir()] == [file.name]
    table = pl.read_parquet(file)
    assert table["samples"].to_list() == [[3.0, 1.0, 2.0]] * 2
    assert table["parameters"].to_list() == ['{"bank": 0}', '{"kernel": "copy"}']
    assert table.select("value", "samples").row(0) == (2.0, [3.0, 1.0, 2.0])


#: A time in ISO 8601 -> the same in UTC, as it sorts by text.
TIMES = {
    "2026-11-01T10:00+01:00": "2026-11-01T09:00:00.000+00:00",
    "2026-11-01T10:00": "2026-11-01T10:00:00.000+00:00",
    "2026-11-01 10:00:00Z": "2026-11-01T10:00:00.000+00:00",
    "20261101T100000+0530": "2026-11-01T04:30:00.000+00:00",
    "2026-W45-1T10:00:00": "2026-11-02T10:00:00.000+00:00",
    "2026-11-01T10:00:00,5": "2026-11-01T10:00:00.500+00:00",
    "2026-11-01T10:00:00.123456-12:00": "2026-11-01T22:00:00.123456+00:00",
    "2026-11-01T10:00:00+00:00": "2026-11-01T10:00:00+00:00",
    "2026-11-01T10:00:00.123+00:00": "2026-11-01T10:00:00.123+00:00",
}


@pytest.mark.parametrize("form", ["lines", "table", "tables"])
def test_a_time_in_any_form_of_iso_8601_is_read_in_utc(tmp_path, form):
    records = [record(time=time) for time in TIMES]
    if form == "lines":
        schema.append(tmp_path / "records.jsonl", records)
    elif form == "table":
        store.append(tmp_path, records)
    else:
        for each in records:
            store.append(tmp_path, [each])
    frame = pl.concat(part.records(schema.columns()) for part in store.tables(store.find([tmp_path])))
    # Equal records of one time are one in a store.
    assert {*frame["time"]} == {*map(datetime.datetime.fromisoformat, TIMES.values())}
    moments = [datetime.datetime.fromisoformat(time).timestamp() * 1000 // 1 for time in TIMES.values()]
    assert [samples_table.of_records([each]).session_times[-1] for each in records] == moments


def test_a_text_that_is_no_time_is_never_1970():
    with pytest.raises(BadInput, match="not a time: 'yesterday'"):
        samples_table.of_records([record(time="yesterday")])
