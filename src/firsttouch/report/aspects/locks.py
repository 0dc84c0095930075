# SPDX-License-Identifier: Apache-2.0
"""Locks: records per second from one reader, by lock, parsing, threads and records of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from firsttouch.benchmarks.locks import BATCH, CHECK, COMMON, RECORDS, WAITING, WITHIN
from firsttouch.records.cases import Case, grouped
from firsttouch.records.schema import Record
from firsttouch.report.aspect import Aspect, Result, best, value, value_table, way_name
from firsttouch.report.document import Cell, Table
from firsttouch.report.model import Absent, HostView, varying, whole
from firsttouch.report.text import clean, count, plain
from firsttouch.units import percent

_TITLE = "Records per second from one reader under a lock"
_HOW = (
    "Twice the rate with twice the threads is perfect scaling; a rate that levels off or falls waits for the lock "
    "or the reader. Original parsing is done under the lock. Otherwise, a thread only copies under the lock and "
    "parses afterwards: one record (deferred), several (batched) or a block of fixed size (blocked). Waiting is "
    "the share of the threads' time that they waited for the lock."
)
#: The order of locks and parsings, from the simplest on; others follow.
LOCKS = ("spin", "ticket", "mutex", "queue", "atomic")
PARSINGS = ("original", "deferred", "batched", "blocked")
_COMPACT = "compact"
_UNIT, _MILLION = "Mrecords/s", 1e6


def aspect(view: HostView) -> Aspect:
    """Return the highest rate of each amount of work with a record, and a table for each."""
    rates = sorted(view.of(CHECK, metric=RECORDS), key=_order)
    if not rates:
        return Aspect(absent=[Absent(_TITLE, view.why_absent(CHECK))])
    names = varying(rates, ignore=("work_ns",))

    def amount(record: Record) -> tuple[float, str]:
        """Return the work with each record, and the other ways of measuring in which rates differ."""
        way = {name: x for name, x in Case.of(record).way.items() if name in names}
        return _work(record), way_name(way)

    groups = sorted(grouped(rates, amount).items())
    needed = grouped(sorted(view.of(CHECK, metric=BATCH), key=_order), amount)
    waiting = {plain(r.parameters): r.value for r in view.of(CHECK, metric=WAITING)}
    results, tables, sentences = [], [], []
    for (work, way), of_group in groups:
        name = ", ".join(filter(None, (_work_text(work), way)))
        batches = {r.parameters["lock"]: round(r.value) for r in needed.get((work, way), ())}
        most = max(whole(r, "threads") for r in of_group)
        if result := _result(of_group, name, most, batches):
            results.append(result)
        tables.append(_table(of_group, name, waiting))
        sentences += sufficient_batches(batches, name, most)
    return Aspect(results, tables=tables, note=" ".join([*sentences, _HOW]))


def _result(rates: Sequence[Record], name: str, most: int, batches: Mapping[str, int]) -> Result | None:
    """Return the highest rate of compact threads, the *most*; of batched ones, those with the common batch."""
    sizes = {_batch(r) for r in rates if r.parameters["parsing"] == "batched"}
    common = COMMON if COMMON in sizes else max(sizes, default=0)
    compact = [r for r in rates if _placement(r) == _COMPACT and whole(r, "threads") == most]
    fastest = best(r for r in compact if r.parameters["parsing"] != "batched" or _batch(r) == common)
    if fastest is None:
        return None
    fastest, original = _in_millions(fastest), best(r for r in compact if r.parameters["parsing"] == PARSINGS[0])
    compared = [f"{fastest.parameters['lock']} lock, {fastest.parameters['parsing']} parsing"]
    if original is not None and fastest.parameters["parsing"] != PARSINGS[0]:
        compared.append(f"original parsing {value(_in_millions(original))}, {original.parameters['lock']} lock")
    if batches:
        compared.append(f"needs {count(max(batches.values()), 'record')} at once")
    return Result(f"one reader, {count(most, 'thread')}, {name}", fastest, "; ".join(compared))


def _table(rates: Iterable[Record], name: str, waiting: Mapping[str, float]) -> Table:
    rows = [
        (
            (
                *(clean(text) for text in (r.parameters["parsing"], r.parameters["lock"], _placement(r))),
                *(whole(r, "threads"), _batch(r) or "", Cell(waiting.get(plain(r.parameters)), percent)),
            ),
            _in_millions(r),
        )
        for r in rates
    ]
    header = ("parsing", "lock", "placement", "threads", "batch", "waiting")
    return value_table(f"{_TITLE}: {name} ({_UNIT})", header, rows)


def sufficient_batches(batches: Mapping[str, int], name: str, most: int) -> list[str]:
    """Return the sentence that states the sufficient batch of each lock with the *most* threads, or nothing."""
    if not batches:
        return []
    size, share = max(batches.values()), percent(WITHIN).replace(".0", "")
    host = "single records" if size == 1 else f"batches of {size} records"
    by_lock = ", ".join(f"{clean(lock)} {batch}" for lock, batch in batches.items())
    return [
        f"With {count(most, 'thread')} and {name}, this host needs {host} to come within {share} of the rate of "
        f"larger batches with each lock: {by_lock}."
    ]


def _in_millions(record: Record) -> Record:
    return replace(record, unit=_UNIT, samples=tuple(sample / _MILLION for sample in record.samples))


def _placement(record: Record) -> str:
    return str(record.parameters.get("placement", _COMPACT))


def _batch(record: Record) -> int:
    batch = record.parameters.get("batch")
    return batch if isinstance(batch, int) and batch > 0 else 0


def _work(record: Record) -> float:
    work = record.parameters.get("work_ns")
    return float(work) if isinstance(work, (int, float)) else 0.0


def _order(record: Record) -> tuple[object, ...]:
    p = record.parameters
    places = (_position(PARSINGS, str(p.get("parsing", ""))), _position(LOCKS, p["lock"]))
    return (*places, _placement(record), whole(record, "threads"), _batch(record))


def _position(order: Sequence[str], name: str) -> tuple[int, str]:
    return (order.index(name) if name in order else len(order), name)


def _work_text(nanoseconds: float) -> str:
    """Return the work with each record: ``no other work``, ``250 ns of work``, ``1 µs of work``."""
    if not nanoseconds:
        return "no other work"
    return f"{nanoseconds / 1000:g} µs of work" if nanoseconds >= 1000 else f"{nanoseconds:g} ns of work"
