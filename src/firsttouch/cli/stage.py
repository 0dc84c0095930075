# SPDX-License-Identifier: Apache-2.0
"""``firsttouch stage``: copies files into the memory of chosen NUMA nodes, for a command or for later ones."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from firsttouch.cli import options
from firsttouch.errors import BadInput, RunFailed
from firsttouch.execution import ram_store, staging
from firsttouch.execution.file_copies import Source, name_of, sources_of
from firsttouch.execution.process_runner import run_in_foreground
from firsttouch.execution.progress import live, say, time_left, write
from firsttouch.execution.ram_store import RamStore, Residence
from firsttouch.host.cpusets import format_list, parse_list
from firsttouch.tools import require
from firsttouch.units import format_bytes, parse

EXAMPLES = """\
  firsttouch stage --on 0 ref.fa -- wc -l {1}                         the copy lives as long as the command
  firsttouch stage --on 0-3 ref.fa.* -- bwa mem {folder}/ref.fa r1.fq    one copy in equal parts on four NUMA nodes
  firsttouch stage --on interleave IDX -- snap-aligner single {1} r1.fq -o -sam -   a folder
  firsttouch stage --on 0 --for 12h ref.fa.*        stays for 12 hours; prints the folder of the copies"""
DESCRIPTION = """\
Copy files or folders into the memory of chosen NUMA nodes, on huge pages where this host's tmpfs has them.

Where every page lies is read back from the kernel. With a command, the copies live as long as it runs: {1}, {2}, …
in its words become the paths of the copies, {folder} becomes their folder, which FIRSTTOUCH_STAGED names too. The
exit status is the command's own. Without a command, the copies stay until `firsttouch staged drop`, but no longer
than the job or session that kills this user's processes at its end, and never through a restart."""
#: The variable that names the folder of the copies.
VARIABLE = "FIRSTTOUCH_STAGED"
_PLACEHOLDER = re.compile(r"\{(folder|[1-9]\d*)\}")


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    parser = options.command(subparsers, "stage", EXAMPLES, DESCRIPTION)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="a file, or a folder with all in it")
    parser.add_argument(
        "--on",
        metavar="NODES",
        help="NUMA nodes as numactl has them (0, 0-3, all); on several, the pages are interleaved in equal parts; "
        "interleave is all",
    )
    parser.add_argument(
        "--spill", action="store_true", help="leave files that do not fit on disk, and link to them"
    )
    parser.add_argument(
        "--for",
        dest="seconds",
        type=options.checked(_stay, "a time above 0, such as 12h or 2d", lambda stay: 0 < stay < math.inf),
        metavar="TIME",
        help="without a command: drop the copies after this time, such as 12h (default: never)",
    )
    options.add(parser, "--threads", help="threads that copy (default: one per PU, 8 at most)")
    options.add_user_command(parser, "the command, with {1}, {2}, … and {folder}", "COMMAND")
    parser.set_defaults(run=run)


def _stay(text: str) -> float:
    """Return a time in seconds; a number without a unit is one of hours, as in earlier releases."""
    try:
        hours = float(text)
    except ValueError:
        return parse(text, "seconds")
    say(f"firsttouch: --for takes a unit now: --for {text}h")
    return hours * 3600


def run(args: argparse.Namespace) -> int:
    """Stage files, for a command or to stay."""
    numa_nodes = _numa_nodes(args.on)
    if not args.files:
        raise BadInput("no file to stage: name files or folders, as in: firsttouch stage --on 0 ref.fa")
    if args.program and args.seconds:
        raise BadInput("--for is for copies that stay: with a command, they live as long as it runs")
    unknown = {int(n) for n in _numbers(args.program)} - set(range(1, len(args.files) + 1))
    if unknown:
        raise BadInput(f"the command has {{{min(unknown)}}}, and the last file is {{{len(args.files)}}}")
    if args.program and not _PLACEHOLDER.search(args.program[0]):
        require(args.program[0])
    sources = sources_of(args.files)
    copied, linked = _divided(sources, numa_nodes) if args.spill else (sources, [])
    began = time.monotonic()
    size = ram_store.needed_bytes(sources) - sum(source.bytes for source in linked)
    with ram_store.hold(numa_nodes, size, even=len(numa_nodes) > 1) as store:
        identities = store.copy_sources(copied, threads=args.threads, on_progress=_meter(copied))
        live("")
        store.link(linked)
        residence = store.verify()
        if residence.reason:
            raise RunFailed(f"the copies do not lie on NUMA node {format_list(numa_nodes)}: {residence.reason}")
        _report(store, copied, linked, residence, time.monotonic() - began)
        if args.program:
            return _run_command(args, store, copied, linked, residence)
        staged = staging.publish(store, copied, identities, linked, args.seconds or math.inf)
    if args.json:
        options.print_json(staged.to_dict(residence))
    else:
        print(staged.folder)
    job = os.environ.get("SLURM_JOB_ID")
    end = f"job {job} ends" if job else "this session ends, if that ends its processes"
    after = f"for {args.seconds / 3600:g} h, or " if args.seconds else ""
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


def _numbers(words: Sequence[str]) -> list[str]:
    return [word for text in words for word in _PLACEHOLDER.findall(text) if word != "folder"]


def _divided(sources: Sequence[Source], numa_nodes: Sequence[int]) -> tuple[list[Source], list[Source]]:
    """Return the files that fit into memory, taken in order, and the others."""
    copied: list[Source] = []
    linked: list[Source] = []
    for source in sources:
        size = ram_store.needed_bytes([*copied, source]) + len(sources) * ram_store.PAGE
        space = ram_store.Space(tuple(numa_nodes), size, even=len(numa_nodes) > 1)
        (linked if ram_store.shortage([space]) else copied).append(source)
    return copied, linked


def _meter(sources: Sequence[Source]) -> Callable[[int], None]:
    """Return what shows the progress of a copy on a terminal."""
    total, began = sum(source.bytes for source in sources), time.monotonic()

    def show(done: int) -> None:
        seconds = time.monotonic() - began
        left = f", {time_left(seconds * (total - done) / done)}" if done and seconds > 2 else ""
        live(f"copying: {format_bytes(done)} of {format_bytes(total)}{left}")

    return show


def _report(
    store: RamStore, copied: Sequence[Source], linked: Sequence[Source], residence: Residence, seconds: float
) -> None:
    for source in linked:
        say(f"firsttouch: {source.file}: stays on disk, {format_bytes(source.bytes)} do not fit")
    nodes, huge = format_list(store.space.numa_nodes), format_bytes(residence.huge_bytes)
    size = format_bytes(sum(source.bytes for source in copied))
    say(
        f"firsttouch: {len(copied)} {'file' if len(copied) == 1 else 'files'} ({size}) on NUMA node {nodes} in "
        f"{seconds:.1f} s, every page verified, {huge} on huge pages"
    )


def _run_command(
    args: argparse.Namespace,
    store: RamStore,
    copied: Sequence[Source],
    linked: Sequence[Source],
    residence: Residence,
) -> int:
    """Run the command with the copies, and return its exit status."""
    places = {str(n): str(store.folder / name_of(file)) for n, file in enumerate(args.files, 1)}
    places["folder"] = str(store.folder)
    words = [_PLACEHOLDER.sub(lambda match: places[match[1]], word) for word in args.program]
    outcome = run_in_foreground(words, None, env={VARIABLE: str(store.folder)})
    status = outcome.exit_status
    if not store.alive():
        say(f"firsttouch: {ram_store.GONE}")
    if args.json:
        document = {
            "command": words,
            "exit_status": status,
            "seconds": outcome.seconds,
            **residence.to_dict(store.space.numa_nodes),
            "size_bytes": sum(source.bytes for source in copied),
            "on_disk": [str(source.file) for source in linked],
        }
        write(json.dumps(document) + "\n")
    return status
