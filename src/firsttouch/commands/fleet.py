# SPDX-License-Identifier: Apache-2.0
"""What commands about a fleet take: records, stores, folders of them, campaigns and ReFrame's results."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from firsttouch import records, reframe_run
from firsttouch.campaign import collect, model
from firsttouch.campaign.state import State, state
from firsttouch.errors import BadInput
from firsttouch.machine import name_among
from firsttouch.records import Record
from firsttouch.reframe_run import Trouble
from firsttouch.store import Sources, batches, find
from firsttouch.systems import System
from firsttouch.verdict import table
from firsttouch.verdict.passes import Passes

if TYPE_CHECKING:
    import polars as pl


#: The checks that run aligners.
ALIGNER_CHECKS = ("scaling", "placement", "weak_scaling")
#: What this program and ReFrame itself call run reports.
_RUN_REPORTS = ("reframe.json", "run-report*.json")


def add(made: argparse.ArgumentParser) -> None:
    """Add the argument."""
    made.add_argument(
        "records",
        nargs="+",
        type=Path,
        metavar="RECORDS_OR_DIR",
        help="records (JSON lines or Parquet), folders or stores of them, campaigns, ReFrame's run reports",
    )


@dataclass(frozen=True)
class Gathered:
    """What was given: files with records, the state of campaigns, and what ReFrame's run reports tell."""

    paths: Sequence[Path]
    sources: Sources
    campaigns: Sequence[State]
    troubles: Sequence[Trouble]

    @cached_property
    def missing(self) -> dict[str, list[str]]:
        """What is missing of the campaigns, by host."""
        return {host: lost for of_system in self.missing_of.values() for host, lost in of_system.items()}

    @cached_property
    def missing_of(self) -> dict[str, dict[str, list[str]]]:
        """What is missing of the campaigns, by system and host."""
        found: dict[str, dict[str, list[str]]] = {}
        for seen in self.campaigns:
            mine = found.setdefault(seen.campaign.system, {})
            for host, lost in collect.missing(seen).items():
                mine.setdefault(host, []).extend(lost)
        return found

    @cached_property
    def _measured(self) -> list[Record]:
        return [r for seen in self.campaigns for r in collect.measured(seen)]

    def passes(self, system: str | None = None) -> Passes:
        """Return the passes of all records, of one *system* only where it is named."""
        return table.of_frames(self._frames(table.READ), system)

    def records(self, hosts: Sequence[str] | None = None, *, aligners: bool = False) -> list[Record]:
        """Return all records, each once, the oldest first: of few *hosts*, or those of *aligners*."""
        import polars as pl  # noqa: PLC0415 - see firsttouch.records

        wanted = pl.lit(value=True) if hosts is None else pl.col("host").is_in(hosts)
        frames = self._frames(tuple(records.columns()))
        if aligners:
            wanted &= pl.col("check").is_in(ALIGNER_CHECKS)
        found = [r for frame in frames for r in records.from_frame(frame.filter(wanted))]
        once = {json.dumps(r.to_dict(), sort_keys=True): r for r in found}
        return sorted(once.values(), key=lambda r: r.time)

    def _frames(self, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        for frame in batches(self.sources, columns):
            yield self._renamed(frame)
        if self._measured:
            yield records.to_frame(self._measured).select(columns)

    def _renamed(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return *frame* with the names that the campaigns have for hosts which it names with their domain."""
        import polars as pl  # noqa: PLC0415 - see firsttouch.records

        names = {host: name_among(host, self.missing) for host in frame["host"].unique()} if self.missing else {}
        return frame.with_columns(pl.col("host").replace(names)) if names else frame

    def nothing(self) -> BadInput:
        """Return the error that there is no record."""
        return BadInput(f"no record in {', '.join(map(str, self.paths))}: a run writes them to records.jsonl")


def gather(paths: Sequence[Path]) -> Gathered:
    """Return what there is among *paths*; raises BadInput for what is not there or cannot be read."""
    for path in paths:
        if not path.exists():
            raise BadInput("no such file or folder", file=path)
    runs = [f for path in paths for f in _run_reports(path)]
    given = [path for path in paths if path not in runs]
    # A run report that was named itself brings the results of its checks along.
    results = [folder for path in paths if path in runs for folder in reframe_run.folders(path)]
    try:
        sources = find([*given, *results])
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", file=error.filename) from error
    campaigns = [state(model.read(path.absolute())) for path in sources.campaigns]
    return Gathered(paths, sources, campaigns, [t for run in runs for t in reframe_run.read(run)])


def _run_reports(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(f for name in _RUN_REPORTS for f in path.rglob(name))
    return [path] if path.suffix == ".json" and reframe_run.is_report(path) else []


def of_system(paths: Sequence[Path], system: System) -> tuple[Passes, Gathered]:
    """Return the passes among *paths*; raises BadInput where there is none, or one of another system."""
    found = gather(paths)
    passes = found.passes()
    if others := sorted({case.system for case in passes.cases} - {system.name}):
        raise BadInput(f"records of system {', '.join(others)} among them: --system {system.name} judges its own")
    if not passes.hosts and not passes.settings and not found.missing:
        raise found.nothing()
    return passes, found
