# SPDX-License-Identifier: Apache-2.0
"""``firsttouch data``: the references and reads of the benchmarks, and their indexes."""

from __future__ import annotations

import argparse
import re
import sys
import time
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from firsttouch import paths
from firsttouch.cli import options
from firsttouch.datasets import fetch, manifest
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
    with _Meter() as meter:
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


class _Meter:
    """Shows progress on stderr: one changing line on a terminal, a line every 10 s in a log."""

    def __init__(self) -> None:
        self._terminal = progress.is_terminal(sys.stderr)
        self._what = ""
        self._shown = time.monotonic()

    def __enter__(self) -> _Meter:
        return self

    def __exit__(self, *_: object) -> None:
        progress.live("")

    def __call__(self, what: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if what != self._what:
            self._what = what
            # A message without bytes is printed at once. In a log, short work gets no line.
            self._shown = 0.0 if total is None or self._terminal else now
        if now - self._shown < (0.1 if self._terminal else 10):
            return
        self._shown = now
        text = what
        if done or total:
            text += f": {format_bytes(done)}"
        if total:
            text += f" of {format_bytes(total)} ({100 * done // total} %)"
        if self._terminal:
            progress.live(text)
        else:
            say(f"firsttouch: {text}")


def _index(args: argparse.Namespace) -> int:
    """Print the index's prefix, with --json also its size."""
    program = aligners.aligner(args.aligner)
    data = fetch.get(args.dataset)
    prefix = aligners.get_index(program, data.reference, paths.data() / "index", sha256=data.sha256, say=say)
    size = program.index_bytes(prefix)
    if args.json:
        options.print_json({"aligner": program.name, "dataset": args.dataset, "index": str(prefix), "bytes": size})
    else:
        print(prefix)
    return 0
