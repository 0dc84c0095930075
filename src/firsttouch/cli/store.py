# SPDX-License-Identifier: Apache-2.0
"""``firsttouch store``: appends records to a store, and joins the small files of one."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from msgspec.structs import replace

from firsttouch.campaign import inputs
from firsttouch.cli import options
from firsttouch.errors import BadInput
from firsttouch.judge import summaries

if TYPE_CHECKING:
    from firsttouch.records.store import Compacted

EXAMPLES = """\
  firsttouch store append /shared/store results/ --json
  firsttouch store append /shared/store results/       (any number of hosts at once, without a lock)
  firsttouch store compact /shared/store               (regularly, e.g. nightly, on one host)
  firsttouch store compact /shared/store --keep 400d --dry-run
      which files have only older records, whose values would be kept without samples, placement and software

A store is a folder of Parquet files, which report, validate and baseline read. When `append` has ended, the
records are on the disk. `compact` joins small files into one, and deletes them an hour later, because other
programs may still be reading them."""


_COMPACT = """\
store STORE  the store's folder
--keep TIME  of records older than this, such as 400d, keep values and times only: verdicts and history stay the
             same
--dry-run    say what would be done, and change nothing"""


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    add_action = options.actions(subparsers, "store", EXAMPLES)
    append = add_action("append", "append records to a store, which is created if it does not exist", _append)
    options.add_table(append, "store STORE  the store's folder\nrecords")
    compact = add_action("compact", "join the small files of a store", _compact)
    options.add_table(compact, _COMPACT, keep={"type": options.age})


def _append(args: argparse.Namespace) -> int:
    from firsttouch.records import store  # noqa: PLC0415 - loads the table library

    # Whether a record counts is asked when it is read: this host's clock may be wrong.
    given = replace(inputs.gather(args.records), keeps_future=True)
    records = given.records()
    given.refuse_unread()
    if not records:
        raise given.nothing()
    file = store.append(args.store, records)
    given.print_ahead()
    if args.json:
        options.print_json({"file": str(file), "records": len(records)})
    else:
        print(f"{len(records)} records: {file}")
    return 0


def _compact(args: argparse.Namespace) -> int:
    from firsttouch.records import store  # noqa: PLC0415 - loads the table library

    if not args.store.is_dir():
        raise BadInput("no such folder", file=args.store)
    done = store.compact(args.store, keep=args.keep, dry_run=args.dry_run)
    if args.dry_run:
        _print_plan(done, as_json=args.json)
        return 0
    summaries.prune(args.store)
    summarised = inputs.gather([args.store]).summarise()
    if args.json:
        counts = {"joined": done.joined, "deleted": done.deleted, "summarised": summarised}
        reduced = {
            "reduced": len(done.reduced),
            "bytes_before": done.bytes_before,
            "bytes_after": done.bytes_after,
        }
        options.print_json({"file": done.file and str(done.file), **counts, **reduced})
    else:
        joined = f"{done.joined} files joined: {done.file}" if done.file else "nothing to join"
        print(f"{joined}; {done.deleted} files of earlier joins deleted; {summarised} large files have summaries")
        if done.reduced:
            before, after = (f"{size / 1e6:.1f} MB" for size in (done.bytes_before, done.bytes_after))
            print(f"{len(done.reduced)} files with older records reduced to their values: {before} -> {after}")
    return 0


def _print_plan(plan: Compacted, *, as_json: bool) -> None:
    """Print what a compaction would do."""
    if as_json:
        files = [str(file) for file in plan.reduced]
        options.print_json({"would_join": plan.joined, "would_reduce": files, "bytes": plan.bytes_before})
        return
    for file in plan.reduced:
        print(f"would be reduced to its values: {file}")
    size = f"{len(plan.reduced)} files of {plan.bytes_before / 1e6:.1f} MB"
    print(f"would join {plan.joined} small files, and reduce {size}; nothing was changed")
