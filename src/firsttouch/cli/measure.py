# SPDX-License-Identifier: Apache-2.0
"""``firsttouch measure``: one aspect of this host as records, with the placement verified."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from firsttouch.benchmarks import measure, probe
from firsttouch.benchmarks.recording import recording
from firsttouch.cli import options
from firsttouch.errors import BadInput, first_of
from firsttouch.execution.progress import say
from firsttouch.host.cpusets import format_list
from firsttouch.records import catalogue, step_outcome
from firsttouch.records.cases import Case
from firsttouch.systems import theoretical_bandwidth
from firsttouch.systems.definition import load

EXAMPLES = """\
  firsttouch measure latency --records records.jsonl            every NUMA node x every bank, the whole curve
  firsttouch measure latency --program lmbench --pu-nodes 0     the same by lat_mem_rd -t, on the nearest bank
  firsttouch measure latency --order sequential --pu-nodes 0 --banks 0-7
  firsttouch measure pages                                      latency and bandwidth by page size
  firsttouch measure bandwidth --pu-nodes 0-3 --set-sizes 2     every pair of four NUMA nodes x every bank
  firsttouch measure bandwidth --pu-nodes 0,1 --banks 0-7       one PU-set of two
  firsttouch measure bandwidth --program likwid-bench --set-sizes 1
  firsttouch measure contention --banks 0 --threads 1,8,64 --json
  firsttouch measure stores                                     by instruction set and store type
  firsttouch measure core-to-core --json                        time of a cache line between two PUs
  firsttouch measure core-to-core -- --pairs=all                every pair of PUs
  firsttouch measure loaded-latency --records records.jsonl     latency while other PUs load memory
  firsttouch measure locks --threads 1,8,64                     records/s from one reader by lock and batch
  firsttouch measure cores                                      clock, caches and memory of every PU, and slow PUs
  firsttouch measure cores --sustain 2min                       their clock under load, until fans and limits act
  firsttouch measure tails                                      the slowest accesses, idle and under load
  firsttouch measure correctness --records records.jsonl        known answers of every PU, patterns in every bank
  firsttouch measure correctness --compare-output 'bwa mem -t1 genome.fa reads.fq'
  firsttouch measure latency -- --sizes memory --pages 4k,thp   by options and defaults of firsttouch-probe
  firsttouch measure topology --                                its own table of this host
  firsttouch measure bandwidth -- --help                        its own options"""
#: The fields of the probe's results that name a case by words.
_WORDS = ["kernel", "stores", "load", "order", "shared", "lock", "parsing", "work", "bits", "chain", "running"]
DESCRIPTION = """\
Measure one aspect of this host's memory, such as latency, as records.

Words behind -- are options of the native probe, firsttouch-probe, which then measures by its own defaults: its
results are printed as a table, with --json as its document. Of the options of this command, only --records,
--system and --share-host may stand before --."""


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    parser = options.command(subparsers, "measure", run, EXAMPLES, DESCRIPTION)
    arg = parser.add_argument
    arg("aspect", choices=tuple(measure.aspects()), metavar="ASPECT", help=", ".join(measure.aspects()))
    programs = dict.fromkeys(program for aspect in measure.aspects().values() for program in aspect.programs)
    name = f"measuring program (default: {probe.NAME})"
    arg("--program", dest="program_name", choices=tuple(programs), help=name)
    pus = "NUMA nodes of the PUs (default: all; stores: the first)"
    arg("--pu-nodes", type=options.numbers, metavar="LIST", help=pus)
    arg(
        "--set-sizes",
        type=options.numbers,
        metavar="LIST",
        help="bandwidth: NUMA nodes in a PU-set (default: one set of --pu-nodes; without it 1, 2, 4, ... and all)",
    )
    banks = "NUMA nodes of the data (default: all; stores, locks and other programs than the probe: the nearest)"
    arg("--banks", type=options.numbers, metavar="LIST", help=banks)
    threads = "contention, locks: numbers of threads (default: 1 to all)"
    options.add(parser, "--threads", type=options.numbers, metavar="LIST", help=threads)
    compared = "correctness: run a program on each PU, all at once, and compare what it prints"
    arg("--compare-output", type=_words, metavar="COMMAND", help=compared)
    sustain = "cores: load all PUs for a time such as 2min, and draw the clock over it (at most 10min)"
    arg("--sustain", type=options.duration, metavar="TIME", help=sustain)
    order = "latency: order of the accesses (default: random)"
    arg("--order", choices=("random", "sequential"), help=order)
    options.add(
        parser,
        "--repetitions",
        help="timed runs of each case; for the probe the least number (default: 3; topology, cores and "
        "correctness without --compare-output are measured once)",
    )
    options.add(parser, "--records", "--share-host")
    options.add(parser, "--system", help="with --: the system whose facts give the theoretical bandwidth")
    options.add_user_command(parser, "options of firsttouch-probe, if any", "OPTION", absent=None)


def _words(text: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}: {text}") from None
    if not words:
        raise argparse.ArgumentTypeError("no program is named")
    return words


def run(args: argparse.Namespace) -> int:
    """Measure, and print the records or a line for each; 1 if one is invalid or proves a defect of the host."""
    chosen = {name: getattr(args, name) for name in ("program_name", "repetitions", *measure.OPTIONS)}
    if args.program is not None:
        if given := [name for name, value in chosen.items() if value is not None]:
            option = given[0].removesuffix("_name").replace("_", "-")
            raise BadInput(f"--{option} before --: the words behind -- are all that the probe gets")
        return _run_probe(
            args.aspect, args.program, args.records, args.system, share_host=args.share_host, as_json=args.json
        )
    if args.system:
        raise BadInput("--system is for the probe's own options: put -- behind the options of this command")
    lists: dict[str, Any] = {
        name: sorted(value) if isinstance(value, list | set) else value for name, value in chosen.items()
    }
    asked = measure.AspectRequest(
        args.aspect,
        program=lists.pop("program_name"),
        **lists,
    )
    measured = measure.measure_aspect(asked, file=args.records, share_host=args.share_host, say=say)
    if args.json:
        options.print_json([r.to_dict() for r in measured])
    for line in measure.spread(measured):
        say(line)
    wrong = [r for r in measured if r.status == "valid" and catalogue.is_exceeded(r.check, r.metric, r.value)]
    findings = [f"{Case.of(record).title}: {record.value:g}, which fails a host" for record in wrong]
    for text in findings:
        say(f"firsttouch: {text}")
    invalid = [r for r in measured if r.status != "valid"]
    if invalid:
        say(f"firsttouch: {len(invalid)} of {len(measured)} records are invalid: {invalid[0].reason}")
        step_outcome.state("invalid", invalid[0].reason)
    elif findings:
        step_outcome.state("found", first_of(findings, 1, "; "))
    else:
        step_outcome.state("measured")
    return 1 if invalid or findings else 0


def _run_probe(
    aspect: str,
    words: Sequence[str],
    file: Path | None,
    system: str | None,
    *,
    share_host: bool,
    as_json: bool,
) -> int:
    """Run the probe with its own options and print its results; 1 if one is invalid, 130 after an interrupt."""
    if aspect not in probe.ASPECTS:
        raise BadInput(f"the probe's own options: it measures {', '.join(probe.ASPECTS)}, not {aspect}")
    if {"--help", "-h"} & {*words}:
        return probe.helped(aspect)
    if file and "--sanity" in words:
        raise BadInput("the values of --sanity are not measurements: leave --records out")
    if system is not None:
        load(system)  # a wrong name is refused, whatever is measured
    theoretical = theoretical_bandwidth.of_this_host(system) if aspect in {"topology", "bandwidth"} else None
    with recording(file, share_host=share_host, watched=aspect != "topology", say=say) as keep:
        report = probe.run(aspect, words, say=say)
        keep(list(report.records()))
    document = report.to_dict()
    if theoretical:
        _add_percent(document, theoretical)
    if as_json:
        options.print_json(document)
    else:
        print(_described(document))
    if report.status != "complete":
        say(f"firsttouch: {report.status}: {report.reason}")
    return {"complete": 0, "partial": 130}.get(report.status, 1)


def _add_percent(document: dict[str, Any], theoretical: theoretical_bandwidth.Theoretical) -> None:
    """Add the theoretical bandwidth of the host, and to each rate its percentage of that of its banks."""
    document["theoretical"] = theoretical.to_dict()
    banks = sum(1 for node in document["host"]["numa_nodes"] if node["memory_bytes"])
    for result in document["results"]:
        share = theoretical.percent(result["value"] * 1e9, len(result["banks"]), banks)
        result["theoretical_percent"] = share


def _described(document: dict[str, Any]) -> str:
    """Return the report as tables for a terminal."""
    from tabulate import tabulate  # noqa: PLC0415 - only for the probe's own options

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
        words = [str(r[k]) for k in _WORDS if k in r]
        if "rate" in r:
            words += [f"{r['read_share']:.0%} reads", f"{r['rate']:.0%} load"]
        if "lock" in r:
            words += [f"{r['batch']} at once", f"{r['work_ns']:g} ns work", r["placement"]]
        words += [f"PU {r['pu']}"] if "pu" in r else []
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
