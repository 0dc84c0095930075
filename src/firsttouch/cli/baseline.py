# SPDX-License-Identifier: Apache-2.0
"""``firsttouch baseline``: learns a system's references, or a processor's levels, and writes the file."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from firsttouch import documents, paths
from firsttouch.cli import options
from firsttouch.errors import BadInput, Missing, one_line
from firsttouch.host.host_lists import fold, unfold
from firsttouch.judge import baseline
from firsttouch.judge.constants import DOUBTFUL_LOSS, FEWEST_HOSTS
from firsttouch.records import atomic_files
from firsttouch.records.samples_table import SamplesTable
from firsttouch.report import inputs
from firsttouch.systems import definition as systems
from firsttouch.systems import processors, references
from firsttouch.systems.definition import load

EXAMPLES = f"""\
  firsttouch baseline --system amd-opteron reports/out/campaigns/validate-77
  firsttouch baseline --system amd-opteron results/ --loss 3       (fail hosts that lose more than 3 % of a metric)
  firsttouch baseline --system amd-opteron results/ --hosts 'n[1-50]'     (where hosts form two groups)
  firsttouch baseline --system amd-opteron results/ -o -            (print the file instead of writing it)
  firsttouch baseline --processor results/                (what reads reach on a processor, from any host)

References need at least {FEWEST_HOSTS} hosts, and `firsttouch validate` then judges each host by them. The file of
a processor says what single hosts with it should reach, whatever their system. Hosts unlike the majority are left
out and named."""
_LISTED = 5


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    parser = options.command(subparsers, "baseline", run, EXAMPLES)
    loss = options.accept(
        lambda text: float(text.removesuffix("%")) / 100,
        "a loss from 0.1 to 50%",
        lambda loss: 0.001 <= loss <= 0.5,
    )
    what = parser.add_mutually_exclusive_group(required=True)
    options.add(what, "--system", help="the system whose file gets the references")
    processor = "learn what reads reach on the processor of the hosts, and write its file"
    what.add_argument("--processor", action="store_true", help=processor)
    options.add(parser, "records")
    detected = "the smallest tolerance, beyond which a host fails: 5 or 5%% (default: 5)"
    parser.add_argument("--loss", type=loss, default=DOUBTFUL_LOSS, metavar="PERCENT", help=detected)
    options.add(parser, "--hosts", help="learn from these hosts only: n[1-8],m2")
    options.add(parser, "--output", type=str, help="write FILE instead of the system's; - prints")


def run(args: argparse.Namespace) -> int:
    """Write the learned references into the system's file, and name the hosts that were left out."""
    if args.output and args.output != "-":
        atomic_files.refuse_overwriting([Path(args.output)], args.records)
    if args.processor:
        return _learn_processor(args)
    system = load(args.system)
    if system.path is None:
        raise Missing(f"{system.name} has no file: `firsttouch system draft {system.name}` writes one")
    text = references.without_learnt(system.path.read_text(encoding="utf-8"))
    before = systems.build(documents.parse_yaml(text, system.path), path=system.path)
    samples, given = inputs.system_samples(args.records, system)
    given.print_ahead()
    given.refuse_unread()
    table = samples if args.hosts is None else _of_hosts(samples, args.hosts)
    learned = baseline.learnt(table, before, loss=args.loss)
    if not learned.learnt:
        reasons = sorted({why for _, why in learned.not_learnt}) or ["none of the records is a metric of a check"]
        raise BadInput(f"nothing was learnt: {'; '.join(reasons[:3])}")
    updated = references.with_learnt(text, (learnt.reference for learnt in learned.learnt))
    # An invalid file is never written.
    systems.build(documents.parse_yaml(updated, system.path), path=system.path)
    out = args.output or str(system.path)
    _write(out, updated)
    if args.json:
        options.print_json({"file": out, **_document(learned, system.name, len(table.hosts), args.loss)})
    else:
        _print_baseline(learned, out, len(table.hosts), args.loss)
    return 0


def _write(out: str, text: str) -> None:
    if out == "-":
        print(text, end="")
    else:
        atomic_files.write(Path(out), text)


def _learn_processor(args: argparse.Namespace) -> int:
    """Write the file of the hosts' processor, and name the hosts that were left out."""
    given = inputs.gather(args.records)
    table = given.samples()
    given.print_ahead()
    given.refuse_unread()
    table = table if args.hosts is None else _of_hosts(table, args.hosts)
    fleets = table.by_system().values()
    learned, left_out = baseline.learnt_processor(fleets, given.configurations(), loss=args.loss)
    name = re.sub(r"[^a-z0-9]+", "-", learned.family.description.lower()).strip("-")
    out = args.output or str(paths.config() / "processors" / f"{name}.toml")
    text = processors.to_toml(learned.family)
    processors.parse(text, Path(out))  # an invalid file is never written
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    _write(out, text)
    if args.json:
        model = documents.attributes(learned.family.models[0], "pattern", "read_share", "tolerance")
        options.print_json({"file": out, **model, "left_out": left_out})
        return 0
    for line in (f"{learned.text}: {out}", *(f"left out: {host}: {why}" for host, why in left_out.items())):
        print(one_line(line), file=sys.stderr if out == "-" else sys.stdout)
    return 0


def _of_hosts(samples: SamplesTable, text: str) -> SamplesTable:
    unknown = sorted((names := set(unfold(text))) - set(samples.hosts))
    if unknown:
        raise BadInput(f"--hosts: no record of {fold(unknown[:_LISTED])}")
    return samples.of_hosts(names)


def _document(learned: baseline.Baseline, system: str, hosts: int, loss: float) -> dict[str, Any]:
    return {
        "system": system,
        "hosts": hosts,
        "references": [
            {
                "case": learnt.case.name,
                "limit": learnt.limit,
                **documents.attributes(learnt.reference, "unit", "value", "error", "source"),
            }
            for learnt in learned.learnt
        ],
        "outliers": {h: [{"case": c.name, "share": s} for c, s in cases] for h, cases in learned.outliers.items()},
        "not_learnt": {case.name: why for case, why in learned.not_learnt},
        "finds_only": {reference.case.name: reference.limit for reference in learned.weak(loss)},
    }


def _print_baseline(learned: baseline.Baseline, out: str, hosts: int, loss: float) -> None:
    stream = sys.stderr if out == "-" else sys.stdout

    def show(text: str) -> None:
        print(one_line(text), file=stream)

    show(f"{len(learned.learnt)} references of {hosts} hosts: {out}")
    for host, cases in sorted(learned.outliers.items(), key=lambda item: -len(item[1])):
        case, share = max(cases, key=lambda m: abs(m[1]))
        side, others = "below" if share < 0 else "above", len(cases) - 1
        more = f"; and {others} more metric{'s' * (others > 1)}" if others else ""
        show(f"left out: {host}: {case.title}: {100 * abs(share):.1f} % {side} the others{more}")
    if weak := learned.weak(loss):
        these = f"{len(weak)} of {len(learned.learnt)} references find only a larger loss than {loss:.1%}"
        show(f"{these}: up to {weak[0].limit:.1%}, {weak[0].case.title} (--json has all)")
    for case, why in learned.not_learnt[:_LISTED]:
        show(f"not learnt: {case.title}: {why}")
    if (more_cases := len(learned.not_learnt) - _LISTED) > 0:
        show(f"not learnt: {more_cases} more (--json has all)")
