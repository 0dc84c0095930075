# SPDX-License-Identifier: Apache-2.0
"""Holds this host during a measurement, and appends the records and the host's error counters to a file."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from firsttouch.records.schema import Record, append, check_appendable


@contextlib.contextmanager
def hold_and_record(
    file: Path | None, *, share_host: bool = False, watched: bool = True, say: Callable[[str], None] = print
) -> Iterator[Callable[[Sequence[Record]], None]]:
    """Hold the host and yield a function that appends records to *file* (None: it discards them).

    With *share_host*, it does not wait for other runs. Without *watched*, as for a topology, it ignores other runs
    and error counters. Raises BadInput if the file holds anything but records.
    """
    from firsttouch.execution import host_lock  # noqa: PLC0415 - help of commands needs none

    if file:
        check_appendable(file)

    def keep(records: Sequence[Record]) -> None:
        if file:
            append(file, records)

    holding = host_lock.hold_unless_shared(say, share_host=share_host or not watched)
    with holding, watching_health(file if watched else None, say=say):
        yield keep


@contextlib.contextmanager
def watching_health(file: Path | None, *, say: Callable[[str], None] = print) -> Iterator[None]:
    """Append this host's error counts of the measurement to the *file* of records, if there is one.

    After an error nothing is appended: a step without a result has no health records.
    """
    if file is None:
        yield
        return
    from firsttouch.benchmarks import health  # noqa: PLC0415 - a run without records needs none

    watch = health.Watch()
    yield
    if measured := watch.records():
        append(file, measured)
    for text in watch.event_lines():
        say(f"firsttouch: {text}")
