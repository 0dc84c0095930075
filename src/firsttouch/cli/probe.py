# SPDX-License-Identifier: Apache-2.0
"""``firsttouch probe``: runs the native memory probe and prints its results as a table, as JSON or as records."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path
from typing import Any

from tabulate import tabulate

from firsttouch.benchmarks import probe
from firsttouch.cli import options
from firsttouch.execution.progress import say
from firsttouch.host.cpusets import format_list
from firsttouch.records.schema import append, check_appendable
from firsttouch.systems import theoretical_bandwidth

EXAMPLES = """\
  firsttouch probe topology
  firsttouch probe latency --sizes memory --pages 4k,thp
  firsttouch probe bandwidth --set-sizes 1,2 --prune --records records.jsonl
  firsttouch probe contention --banks 0 --json
  firsttouch probe core-to-core --pairs all
  firsttouch probe bandwidth --help     the probe's own options"""


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    parser = options.command(subparsers, "probe", EXAMPLES)
    options.add(parser, "--records", "--share-host")
    options.add(parser, "--system", help="the system whose facts give the theoretical bandwidth")
    parser.add_argument("aspect", metavar="ASPECT", choices=probe.ASPECTS, help=", ".join(probe.ASPECTS))
    parser.add_argument(
        "options", nargs=argparse.REMAINDER, default=[], metavar="OPTION", help="options of firsttouch-probe"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the probe and print its results; 1 if a result is invalid, 130 after an interrupt."""
    # After the aspect stand the probe's options, with those of this command among them.
    own = argparse.ArgumentParser(prog="firsttouch probe", add_help=False, allow_abbrev=False)
    own.add_argument("--json", action="store_true", default=args.json)
    own.add_argument("--records", type=Path, default=args.records)
    own.add_argument("--system", default=args.system)
    own.add_argument("--share-host", action="store_true", default=args.share_host)
    given, rest = own.parse_known_args(args.options)
    if {"--help", "-h"} & set(rest):
        return probe.helped()
    if given.records:
        check_appendable(given.records)
    theoretical = (
        theoretical_bandwidth.of_this_host(given.system) if args.aspect in {"topology", "bandwidth"} else None
    )
    watched = args.aspect != "topology"
    with (
        options.holding(given) if watched else contextlib.nullcontext(),
        options.watching_health(given.records if watched else None),
    ):
        report = probe.run(args.aspect, rest, say=say)
    if given.records:
        append(given.records, report.records())
    document = report.to_dict()
    if theoretical:
        _add_percent(document, theoretical)
    if given.json:
        options.print_json(document)
    else:
        print(describe(document))
    if report.status != "complete":
        print(f"firsttouch: {report.status}: {report.reason}", file=sys.stderr)
    return {"complete": 0, "partial": 130}.get(report.status, 1)


def _add_percent(document: dict[str, Any], theoretical: theoretical_bandwidth.Theoretical) -> None:
    """Add the theoretical bandwidth of the host, and to each rate its percentage of that of its banks."""
    document["theoretical"] = theoretical.to_dict()
    banks = sum(1 for node in document["host"]["numa_nodes"] if node["memory_bytes"])
    for result in document["results"]:
        share = theoretical.percent(result["value"] * 1e9, len(result["banks"]), banks)
        result["theoretical_percent"] = share


def describe(document: dict[str, Any]) -> str:
    """Return the report as tables for a terminal."""
    nodes = [
        (
            n["number"],
            format_list(n["usable_pus"]) or "none",
            n["memory_bytes"] // 2**20,
            "yes" if n["data"] else "no",
        )
        for n in document["host"]["numa_nodes"]
    ]
    parts = [tabulate(nodes, ("NUMA node", "usable PUs", "memory (MiB)", "data may lie there"))]
    if theoretical := document.get("theoretical"):
        rate = theoretical["bytes_per_second"]
        bandwidth = (
            f"{rate / 1e9:.1f} GB/s ({theoretical['source']})" if rate else f"unknown: {theoretical['reason']}"
        )
        parts.append(f"theoretical bandwidth: {bandwidth}")
    rows = []
    for r in document["results"]:
        words = [str(r[k]) for k in ("kernel", "stores", "load", "order", "shared", "lock", "parsing") if k in r]
        if "rate" in r:
            words += [f"{r['read_share']:.0%} reads", f"{r['rate']:.0%} load"]
        if "lock" in r:
            words += [f"{r['batch']} at once", f"{r['work_ns']:g} ns work", r["placement"]]
        if "shared" in r:
            words.append(format_list(r["pus"]))
        case = " ".join(words)
        of = r.get("size_bytes") or r.get("array_bytes") or 0
        banks = format_list(r["banks"]) + (" interleaved" if r["policy"] == "interleave" else "")
        nodes_text = format_list(r["pu_nodes"])
        value = f"{r['value']:.4g}"
        notes = [r["reason"]] if r["reason"] else []
        notes += ["partial"] if r["partial"] else []
        if share := r.get("theoretical_percent"):
            notes.append(f"{share:.0f} % of theory")
        if r.get("stands_for"):
            notes.append(f"stands for {len(r['stands_for'])} more")
        pages = r["pages"]["asked"]
        rows.append(
            (r["metric"], case, nodes_text, r["threads"], banks, of, pages, value, r["unit"], "; ".join(notes))
        )
    if rows:
        heads = ("metric", "case", "PU nodes", "threads", "bank", "bytes", "pages", "median", "unit", "notes")
        parts.append(tabulate(rows, heads, disable_numparse=True))
    return "\n\n".join(parts)
