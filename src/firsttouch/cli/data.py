# SPDX-License-Identifier: Apache-2.0
"""``firsttouch data``: the references and reads of the benchmarks, and their indexes."""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from firsttouch import paths
from firsttouch.cli import options
from firsttouch.datasets import fetch, manifest
from firsttouch.datasets.store import Progress
from firsttouch.execution import progress
from firsttouch.execution.progress import say
from firsttouch.genomics import aligners
from firsttouch.units import format_bytes

EXAMPLES = """\
  firsttouch data list
  firsttouch data get lambda
  firsttouch data get synthetic --set genome_size=100MB --set pairs=500000
  firsttouch data get gcat --from gcat_100bp_se.fq.gz
  firsttouch data index --aligner bwa-mem --dataset lambda

Datasets are stored in FIRSTTOUCH_DATA, or in datasets/store of the checkout. Repeat the command to continue an
interrupted download."""


def register(subparsers: options.Subparsers) -> None:
    """Add `data` with its sub-commands to *subparsers*."""
    add_action = options.actions(subparsers, "data", EXAMPLES)
    add_action("list", "list the datasets, and which of them are in the store", _list)
    getting = add_action("get", "download or generate a dataset, and print its folder", _get)
    getting.add_argument("name", metavar="DATASET", help=options.SHARED["--dataset"]["help"])
    values = "a value of a generated dataset, such as genome_size=50MB or seed=7; may be repeated"
    getting.add_argument("--set", action="append", type=_setting, default=[], metavar="NAME=VALUE", help=values)
    files = "take these files (one per downloaded file, in order) instead of downloading"
    getting.add_argument("--from", dest="from_files", nargs="+", type=Path, default=(), metavar="FILE", help=files)
    indexing = add_action("index", "build an aligner's index of a dataset, once, and print its prefix", _index)
    options.add(indexing, "--aligner", "--dataset", required=True)


def _list(args: argparse.Namespace) -> int:
    described, errors = manifest.available()
    states = [(dataset, fetch.state(dataset)) for dataset in described]
    if args.json:
        options.print_json({"datasets": [_document(dataset, state) for dataset, state in states]})
    else:
        width = max((len(dataset.name) for dataset, _ in states), default=0)
        for dataset, state in states:
            print(f"{dataset.name:<{width}}  {state:<8}  {dataset.kind:<9}  {dataset.title}")
    for error in errors[:-1]:
        say(f"firsttouch: {error}")
    if errors:
        raise errors[-1]
    return 0


def _document(dataset: manifest.Dataset, state: str) -> dict[str, Any]:
    document: dict[str, Any] = {key: getattr(dataset, key) for key in ("name", "title", "kind", "source")}
    document |= {"reference": dataset.reference or None, "expect": dataset.expect.facts()}
    return document | {"options": asdict(dataset.options) if dataset.options else {}, "state": state}


def _get(args: argparse.Namespace) -> int:
    with _meter() as meter:
        local = fetch.get(args.name, progress=meter, from_files=args.from_files, **dict(args.set))
    _show(local, as_json=args.json)
    return 0


def _setting(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if not re.fullmatch(r"[A-Za-z0-9.+-]+", value):
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=VALUE, such as genome_size=50MB")
    return name, value


def _show(local: fetch.LocalDataset, *, as_json: bool) -> None:
    """Print the files of the dataset to stdout, and notes to stderr."""
    for note in local.notes:
        print(f"firsttouch: note: {note}", file=sys.stderr)
    reads = [str(path) for path in local.reads]
    if as_json:
        document = {"name": local.name, "reference": str(local.reference), "reads": reads}
        options.print_json(document | {"expect": local.expect.facts(), "notes": local.notes})
        return
    print(f"reference  {local.reference}")
    for path in reads:
        print(f"reads      {path}")


@contextlib.contextmanager
def _meter() -> Iterator[Progress]:
    """Yield a function that shows progress: a live line on a terminal, and in a log the name of each work."""
    last = ""

    def show(what: str, done: int, total: int | None) -> None:
        nonlocal last
        if what != last and not progress.is_terminal(sys.stderr):
            say(f"firsttouch: {what}")
        last = what
        size = f" of {format_bytes(total)} ({100 * done // total} %)" if total else ""
        progress.live(f"{what}: {format_bytes(done)}{size}" if done or total else what)

    try:
        yield show
    finally:
        progress.live("")


def _index(args: argparse.Namespace) -> int:
    """Print the index's prefix, and with --json its size."""
    program = aligners.aligner(args.aligner)
    data = fetch.get(args.dataset)
    prefix = aligners.get_index(program, data.reference, paths.data() / "index", sha256=data.sha256, say=say)
    size = program.index_bytes(prefix)
    if args.json:
        options.print_json({"aligner": program.name, "dataset": args.dataset, "index": str(prefix), "bytes": size})
    else:
        print(prefix)
    return 0
