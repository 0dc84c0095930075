# SPDX-License-Identifier: Apache-2.0
"""What commands about a fleet take: records, folders of them, and campaigns."""

from __future__ import annotations

import argparse
from pathlib import Path

from firsttouch import records
from firsttouch.campaign import collect, model
from firsttouch.campaign.state import state
from firsttouch.errors import BadInput
from firsttouch.records import Record
from firsttouch.systems import System


def add(made: argparse.ArgumentParser) -> None:
    """Add the argument."""
    made.add_argument(
        "records", nargs="+", type=Path, metavar="RECORDS_OR_DIR", help="records, folders of them, or a campaign"
    )


def gather(paths: list[Path], system: System) -> tuple[list[Record], dict[str, list[str]]]:
    """Return the records among *paths*, and by host what is missing of the campaigns among them.

    Raises BadInput where there is none, or one of another system.
    """
    for path in paths:
        if not path.exists():
            raise BadInput("no such file or folder", file=path)
    campaigns = [path for path in paths if (path / "campaign.json").exists()]
    found = records.collect(path for path in paths if path not in campaigns)
    missing: dict[str, list[str]] = {}
    for path in campaigns:
        seen = state(model.read(path.absolute()))
        found += collect.measured(seen)
        for host, lost in collect.missing(seen).items():
            missing.setdefault(host, []).extend(lost)
    if others := sorted({r.system for r in found} - {system.name}):
        raise BadInput(f"records of system {', '.join(others)} among them: --system {system.name} judges its own")
    if not found and not missing:
        raise BadInput(f"no record in {', '.join(map(str, paths))}: a run writes them to records.jsonl")
    return found, missing
