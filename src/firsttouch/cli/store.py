# SPDX-License-Identifier: Apache-2.0
"""``firsttouch store``: appends records to a store."""

from __future__ import annotations

import argparse
from pathlib import Path

from msgspec.structs import replace

from firsttouch.cli import options
from firsttouch.report import inputs

EXAMPLES = """\
  firsttouch store append /shared/store results/ --json
  firsttouch store append /shared/store results/       (any number of hosts at once, without a lock)
  firsttouch store append /shared/new /shared/store    (one file of each table instead of many)

A store is a folder of Parquet files, which report, validate and baseline read. When `append` has ended, the
records are on the disk."""


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    add_action = options.actions(subparsers, "store", EXAMPLES)
    append = add_action("append", "append records to a store, which is created if it does not exist", _append)
    append.add_argument("store", type=Path, metavar="STORE", help="the store's folder")
    options.add(append, "records", "--perflogs")


def _append(args: argparse.Namespace) -> int:
    # Records are checked when they are read, because this host's clock may be wrong.
    given = replace(inputs.gather(args.records, logs=args.perflogs), keeps_future=True)
    import polars as pl  # noqa: PLC0415 - see firsttouch.records

    from firsttouch.records import schema, store  # noqa: PLC0415 - loads the table library

    columns = [name for name in schema.columns() if "placement" not in name]
    records = pl.concat([schema.to_frame(()).select(columns), *given.frames(columns)])
    given.refuse_unread()
    if records.is_empty():
        raise given.nothing()
    file = store.append(args.store, records)
    given.print_ahead()
    if args.json:
        options.print_json({"file": str(file), "records": len(records)})
    else:
        print(f"{len(records)} records: {file}")
    return 0
