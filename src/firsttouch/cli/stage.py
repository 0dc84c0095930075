# SPDX-License-Identifier: Apache-2.0
"""``firsttouch stage``: copies files into the memory of chosen NUMA nodes, for a command or for later ones."""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from firsttouch.cli import options
from firsttouch.errors import BadInput
from firsttouch.execution import ram_store, staging
from firsttouch.execution.file_copies import Source
from firsttouch.execution.jobs import Outcome
from firsttouch.execution.progress import live, say, time_left, write
from firsttouch.execution.staging import Copies
from firsttouch.host.cpusets import format_list, parse_list
from firsttouch.units import format_bytes

EXAMPLES = """\
  firsttouch stage --on 0 ref.fa -- wc -l {1}                         the copy lives as long as the command
  firsttouch stage --on 0-3 ref.fa.* -- bwa mem {folder}/ref.fa r1.fq    one copy in equal parts on four NUMA nodes
  firsttouch stage --on interleave IDX -- snap-aligner single {1} r1.fq -o -sam -   a folder
  firsttouch stage --on 0 --keep 12h ref.fa.*      stays for 12 hours; prints the folder of the copies"""
DESCRIPTION = """\
Copy files or folders into the memory of chosen NUMA nodes, on huge pages where this host's tmpfs has them.

Where every page lies is read back from the kernel. With a command, the copies live as long as it runs: {1}, {2}, …
in its words become the paths of the copies, {folder} becomes their folder, which FIRSTTOUCH_STAGED names too. The
exit status is the command's own. Without a command, the copies stay until `firsttouch staged drop`, but no longer
than the job or session that kills this user's processes at its end, and never through a restart."""


_OPTIONS = """\
files [FILE...]  a file, or a folder with all in it
--on NODES       NUMA nodes as numactl has them (0, 0-3, all); on several, the pages are interleaved in equal
                 parts; interleave is all
--spill          leave files that do not fit on disk, and link to them
--keep TIME      without a command: drop the copies after this time, such as 12h (default: never)
--threads        threads that copy (default: one per PU, 8 at most)"""


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    parser = options.command(subparsers, "stage", run, EXAMPLES, DESCRIPTION)
    options.add_table(parser, _OPTIONS, keep={"dest": "seconds"})
    options.add_user_command(parser, "the command, with {1}, {2}, … and {folder}", "COMMAND", absent=None)


def run(args: argparse.Namespace) -> int:
    """Stage files, for a command or to stay."""
    numa_nodes = _numa_nodes(args.on)
    if not args.files:
        raise BadInput("no file to stage: name files or folders, as in: firsttouch stage --on 0 ref.fa")
    if args.program == []:
        raise BadInput("no command behind --: give it there, or leave -- out to keep the copies")
    if args.program and args.seconds:
        raise BadInput("--keep is for copies that stay: with a command, they live as long as it runs")
    staging.check_words(args.program or (), len(args.files))
    with staging.copies_of(
        args.files, numa_nodes, spill=args.spill, threads=args.threads, progress=_meter
    ) as copies:
        live("")
        _report(copies)
        if args.program:
            words, outcome = copies.run(args.program, args.files)
            if not copies.store.alive():
                say(f"firsttouch: {ram_store.GONE}")
            if args.json:
                write(json.dumps(_document(copies, words, outcome)) + "\n")
            return outcome.exit_status
        staged = copies.keep(args.seconds or math.inf)
    if args.json:
        options.print_json(staged.to_dict(copies.residence))
    else:
        print(staged.folder)
    job = os.environ.get("SLURM_JOB_ID")
    end = f"job {job} ends" if job else "this session ends, if that ends its processes"
    seconds = args.seconds or 0.0
    time_kept = f"{seconds / 3600:g} h" if seconds >= 3600 else f"{seconds:g} s"
    after = f"for {time_kept}, or " if seconds else ""
    say(f"firsttouch: they stay {after}until `firsttouch staged drop {staged.id}`, or until {end}")
    return 0


def _numa_nodes(text: str | None) -> tuple[int, ...]:
    """Return the NUMA nodes that --on names."""
    if not text:
        raise BadInput("on which NUMA nodes? Give --on 0, --on 0-3 or --on interleave")
    if text in {"all", "interleave"}:
        return ram_store.usable_nodes()
    try:
        return tuple(sorted(parse_list(text)))
    except BadInput as error:
        raise BadInput(f"--on {text}: give NUMA nodes such as 0, 0-3 or all, or interleave") from error


def _meter(sources: Sequence[Source]) -> Callable[[int], None]:
    """Return what shows the progress of a copy on a terminal."""
    total, began = sum(source.bytes for source in sources), time.monotonic()

    def show(done: int) -> None:
        seconds = time.monotonic() - began
        left = f", {time_left(seconds * (total - done) / done)}" if done and seconds > 2 else ""
        live(f"copying: {format_bytes(done)} of {format_bytes(total)}{left}")

    return show


def _report(copies: Copies) -> None:
    """Say what was copied, and what was not."""
    for source in copies.linked:
        say(f"firsttouch: {source.file}: stays on disk, {format_bytes(source.bytes)} do not fit")
    nodes, huge = format_list(copies.store.space.numa_nodes), format_bytes(copies.residence.huge_bytes)
    files = f"{len(copies.copied)} {'file' if len(copies.copied) == 1 else 'files'}"
    say(
        f"firsttouch: {files} ({format_bytes(copies.size_bytes)}) on NUMA node {nodes} in {copies.seconds:.1f} s, "
        f"every page verified, {huge} on huge pages"
    )


def _document(copies: Copies, words: Sequence[str], outcome: Outcome) -> dict[str, Any]:
    return {
        "command": list(words),
        "exit_status": outcome.exit_status,
        "seconds": outcome.seconds,
        **copies.residence.to_dict(copies.store.space.numa_nodes),
        "size_bytes": copies.size_bytes,
        "on_disk": [str(source.file) for source in copies.linked],
    }
