# SPDX-License-Identifier: Apache-2.0
"""``firsttouch plan``: lists the scenarios of a host, and prints the commands of one."""

from __future__ import annotations

import argparse
import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from firsttouch import paths
from firsttouch.cli import options
from firsttouch.errors import CannotHere, Missing
from firsttouch.genomics import aligners
from firsttouch.genomics.aligners import Aligner, aligner
from firsttouch.host.cpusets import format_list
from firsttouch.host.topology import Topology, load
from firsttouch.scenarios import memory_options
from firsttouch.scenarios.memory_fit import Need, copy_banks
from firsttouch.scenarios.placement import Plan, Scenario, plan
from firsttouch.scenarios.policies import policy
from firsttouch.units import format_bytes

EXAMPLES = """\
  firsttouch plan --aligner bwa-mem --index-size 5.1GB
  firsttouch plan --aligner bwa-mem --index idx/hg --threads 32 --json
  firsttouch plan --aligner bwa-mem --dataset lambda 2x1-bound       the commands of one scenario
  firsttouch plan --aligner bwa-mem --policies original,preferred-many
  firsttouch plan --aligner bwa-mem --dataset lambda 2x1-bound+node-index       one index for each NUMA node
  firsttouch plan --aligner bwa-mem --index-size 5.1GB --xml host.xml
  firsttouch plan --aligner bwa-mem --fsroot 64amd64-4s2n4ca2co

names: 8x16-bound is 8 instances of 16 threads, each bound to its own CPUs and
memory, and 8x-bound divides all CPUs of a host among 8 instances. Commands take
any number of instances and threads that the host can carry, listed here or not."""

_WIDTH = 80


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    parser = options.command(subparsers, "plan", run, EXAMPLES)
    options.add(parser, "--aligner", required=True, help="plan for the memory that this aligner needs")
    index = parser.add_mutually_exclusive_group()
    replica = "size of one replica of the index, such as 5.1GB"
    index.add_argument("--index-size", type=options.size, metavar="SIZE", help=replica)
    options.add(index, "--index", help="take the size from the files of this index")
    options.add(index, "--dataset", help="take the size from the index of this dataset")
    options.add(parser, "--threads", "--policies")
    options.add(parser, "--options", help="list these memory options: none, all (default), or a list with commas")
    options.add_topology(parser)
    options.add(parser, "scenario", nargs="?", help="print the commands of this scenario")


def run(args: argparse.Namespace) -> int:
    """Print the plan, or the commands of one scenario; raises CannotHere if none fits."""
    program = aligner(args.aligner)
    size = _index_bytes(program, args.index_size, args.index, args.dataset)
    need = program.need(size or 0)
    host = load(xml=args.xml, fsroot=args.fsroot)
    planned = plan(host, need, threads=args.threads, policies=args.policies)
    memory = sum(host.node(n).memory_bytes for n in host.data_nodes)
    if args.scenario:
        scenario = planned.scenario(args.scenario)
        if args.json:
            options.print_json(scenario.to_dict())
        else:
            words = "  ".join(_words(scenario, host, need, memory))
            print("\n".join(_commands(scenario, words, program)))
        return 0
    names = memory_options.select_for_aligner(args.options)
    # Of a stored host, only the topology is known.
    refused = memory_options.combinations(names, program.program)[1] if host.here else {}
    if args.json:
        options.print_json(
            {
                "topology": host.to_dict(),
                "scenarios": [s.to_dict() for s in planned.scenarios],
                "infeasible": [
                    {"name": n, "reason": r, "fits_as": (other := planned.with_fitting_index(n)) and other.name}
                    for n, r in planned.infeasible
                ],
                "memory_options": [
                    {"name": n, "title": memory_options.option(n).title, "reason": refused.get(n, "")}
                    for n in names
                ],
            }
        )
    else:
        notes = [f"note: {remark}" for remark in host.remarks()]
        if planned.scenarios:
            print("\n".join(_groups(planned, host, need, memory)))
            notes += [*_reasons(planned), *_fitting(planned, host, need, memory)]
            notes += _options(planned, names, refused)
        if size is None:
            notes.insert(0, "note: without --index, --dataset or --index-size the plan assumes an index of size 0")
        for note in notes:
            print(_wrapped(note, "  "))
    if not planned.scenarios:
        name, reason = planned.infeasible[0]
        raise CannotHere(f"no scenario can be run: {name}: {reason}")
    return 0


def _index_bytes(program: Aligner, size: int | None, index: Path | None, dataset_name: str | None) -> int | None:
    """Return the size of the index, None if no option states one; raises BadInput or Missing without the files."""
    if index:
        return program.index_bytes(program.index_named(index))
    if dataset_name:
        from firsttouch.datasets import fetch, manifest  # noqa: PLC0415 - see the package

        # A plan must be quick, so it neither downloads a genome nor builds an index.
        dataset = manifest.load(dataset_name)
        for part in (dataset, *([manifest.load(dataset.reference)] if dataset.reference else [])):
            if fetch.state(part) in {"absent", "partial"}:
                raise Missing(f"{part.name} is not in the store: get it with `firsttouch data get {dataset_name}`")
        data = fetch.get(dataset_name)
        prefix = aligners.index_prefix(program, data.reference, paths.data() / "index", data.sha256)
        return program.index_bytes(prefix)
    return size


def _groups(planned: Plan, host: Topology, need: Need, memory: int) -> Iterator[str]:
    """Yield a line for each number of instances and threads, followed by the names by policy."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for scenario in planned.scenarios:
        groups.setdefault(_words(scenario, host, need, memory), []).append(scenario.name)
    widths = [max(map(len, column)) for column in zip(*groups, strict=True)]
    for words, names in groups.items():
        yield "  ".join(word.ljust(width) for word, width in zip(words, widths, strict=True)).rstrip()
        yield _wrapped(f"    {', '.join(names)}", "    ")


def _words(scenario: Scenario, host: Topology, need: Need, memory: int) -> tuple[str, ...]:
    """Return threads, CPUs and memory of a scenario in words."""
    n, threads = scenario.instances, scenario.threads
    copies = memory_options.index_copies(scenario.options)
    number = len(copy_banks([p.numa_nodes for p in scenario.placements], copies)) or int(copies == "none")
    shared = f" + {number} x {format_bytes(need.file_bytes)}" if number else ""
    return (
        f"{n} x {threads} thread" + "s" * (threads > 1),
        _bound(scenario, host),
        f"{n} x {format_bytes(need.bytes_for(threads, copies))}{shared} of {format_bytes(memory)}",
    )


def _bound(scenario: Scenario, host: Topology) -> str:
    if scenario.instances == 1 or not policy(scenario.policy).binds:
        return "not bound to CPUs"
    word, regions = "NUMA node", [frozenset(host.usable_pus(n)) for n in host.cpu_nodes]
    placed = [frozenset(placement.pus) for placement in scenario.placements]
    if host.domains and any(pus < region for pus in placed for region in regions):
        word, regions = "cache", [domain & host.allowed_pus for domain in host.domains]
    touched = [[region for region in regions if not region.isdisjoint(pus)] for pus in placed]
    counts = {len(members) for members in touched}
    whole = all(pus == frozenset().union(*members) for pus, members in zip(placed, touched, strict=True))
    most = max(counts)
    number = f"{min(counts)} to {most}" if len(counts) > 1 else str(most)
    cpus = "" if whole else f"{scenario.threads} CPU{'s' * (scenario.threads > 1)} of "
    return f"bound to {cpus}{number} {word}{'s' * (most > 1)} each"


def _commands(scenario: Scenario, words: str, program: Aligner) -> Iterator[str]:
    """Yield the commands of a scenario's instances, to be pasted into a shell."""
    yield f"# {scenario.name}: {words}"
    copies = memory_options.index_copies(scenario.options)
    for nodes in copy_banks([p.numa_nodes for p in scenario.placements], copies):
        evenly = "evenly on NUMA nodes" if len(nodes) > 1 else "on NUMA node"
        yield f"# a copy of the index in RAM, {evenly} {format_list(nodes)}"
    if copies in {"node", "all"}:
        yield f"# `firsttouch run` makes the copies and gives them to {program.program}"
    if copies != "own" and program.index.mapped.words:
        replaced = f" in place of {program.index.mapped.replaces}" if program.index.mapped.replaces else ""
        yield f"# {program.program} maps its index with {shlex.join(program.index.mapped.words)}{replaced}"
    if copies != "own" and program.index.loaded:
        argv = [word.format(index="INDEX") for word in program.index.loaded]
        yield f"# {program.program} maps its index after `{shlex.join(argv)}`"
    for placement in scenario.placements:
        env = [f"{name}={value}" for name, value in memory_options.environment(scenario.options, {}).items()]
        numactl = ["numactl", *placement.numactl, "--"] if placement.numactl else []
        yield shlex.join([*(["env", *env] if env else []), *numactl, "PROGRAM"])


def _reasons(planned: Plan) -> Iterator[str]:
    """Yield each reason why scenarios cannot be run, with the names of these scenarios."""
    names: dict[str, list[str]] = {}
    for name, reason in planned.infeasible:
        names.setdefault(reason, []).append(name)
    yield from (f"cannot be run: {', '.join(names[reason])}: {reason}" for reason in names)


def _fitting(planned: Plan, host: Topology, need: Need, memory: int) -> Iterator[str]:
    """Yield, by index option, the scenarios that fit because instances share copies of the index."""
    by_option: dict[str, dict[str, list[str]]] = {}
    for name, _ in planned.infeasible:
        other = planned.with_fitting_index(name)
        if other and (index := memory_options.option_of_kind(other.options, "index")):
            words = _words(other, host, need, memory)[-1]
            by_option.setdefault(index.name, {}).setdefault(words, []).append(name)
    for option, names in by_option.items():
        groups = (f"{', '.join(of_these)} ({words})" for words, of_these in names.items())
        yield f"can be run with +{option}, which shares copies of the index: {'; '.join(groups)}"


def _options(planned: Plan, names: Sequence[str], refused: Mapping[str, str]) -> Iterator[str]:
    """Yield the memory options that scenarios may have, and why this host refuses others."""
    if available := [name for name in names if name not in refused]:
        largest = planned.scenarios[-1].name
        yield f"memory options: {', '.join(available)}, as suffixes of any name: {largest}+{available[0]}"
    yield from refused.values()


def _wrapped(text: str, indent: str) -> str:
    return textwrap.fill(text, _WIDTH, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)
