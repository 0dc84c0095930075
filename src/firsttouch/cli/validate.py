# SPDX-License-Identifier: Apache-2.0
"""``firsttouch validate``: the verdict of each host by its system's references and its fleet."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence

from msgspec.structs import asdict

from firsttouch.cli import options
from firsttouch.errors import BadInput, first_of, one_line
from firsttouch.execution.progress import colour_verdicts, tabular
from firsttouch.fleet import exclusion
from firsttouch.fleet.measuring import status as status_of
from firsttouch.fleet.measuring import undecided_note
from firsttouch.host.host_lists import fold
from firsttouch.judge.judging import explain
from firsttouch.judge.verdict import EXPECTED, ORDER, PartFinding, Word, worst
from firsttouch.records.cases import by_key
from firsttouch.report import inputs
from firsttouch.statistics import as_fraction
from firsttouch.systems.definition import Undescribed, available, load

#: With more results than these, only hosts that are bad are shown in detail.
MOST_RESULTS = 200_000
_DETAILED = frozenset(["fail", "invalid", "suspect"])
#: The most hosts in a message.
_NAMED = 4
EXAMPLES = """\
  firsttouch validate --system amd-opteron results/               all records below a folder
  firsttouch validate --system amd-opteron reports/out/campaigns/validate-77
  firsttouch validate --system amd-opteron n1.jsonl n2.jsonl --json
  firsttouch validate --system amd-opteron store/                 a store that hosts append to (Parquet)
  firsttouch validate --system amd-opteron results/ --drain --dry-run
  firsttouch validate --system mycluster --perflogs perflogs/     ReFrame's logs of any checks
  firsttouch validate --system amd-opteron store/ --explain n7    why it fails, or why it does not
(`firsttouch campaign run validate` measures this host first.)

Records of other systems are left out. Files with unreadable records are named, and hosts to which such records may
belong do not pass.
Exit status: 0 no host is worse than undecided (the last line says so), 1 a host fails or is invalid, 2 something
cannot be read, 4 a host is suspect. With --strict, also 4 if a host is undecided: its measurements cannot tell."""


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    parser = options.command(subparsers, "validate", run, EXAMPLES)
    options.add(parser, "--system", required=True, help="the system whose references judge")
    options.add(parser, "records", "--strict", "--drain", "--reservation")
    options.add(parser, "--dry-run", help="with --drain: show the commands, run none")
    options.add(parser, "--perflogs")
    parser.add_argument("--explain", metavar="HOST", help="losses, limits and words of each part of a host")


def _explained(findings: Sequence[PartFinding]) -> list[str]:
    """Return a line for each part of a host and each of the three questions that was answered."""

    def share(loss: float) -> str:
        return f"{100 * as_fraction(loss):.1f} %" if math.isfinite(loss) else "-"

    # Of levels without siblings, the note is the source.
    notes = [f", {p.note}" if p.note and p.word == "pass" and p.question != EXPECTED else "" for p in findings]
    rows = [
        (p.part, p.kind, p.question, *map(share, (p.loss, p.limit, p.sight)), p.word + note)
        for p, note in zip(findings, notes, strict=True)
    ]
    header = ("part", "kind", "compared with", "loss", "limit", "sight", "word")
    return tabular(rows, header, "plain").splitlines()


def _only(host: str | None, words: dict[str, Word]) -> dict[str, Word]:
    """Return the verdict of a *host*, or of all; raises BadInput for an unknown host."""
    if host is not None and host not in words:
        raise BadInput(f"--explain {host}: unknown host: there are {first_of([*words], _NAMED)}")
    return words if host is None else {host: words[host]}


def run(args: argparse.Namespace) -> int:
    """Print a line per host and one for all, or the JSON document; return the verdicts' status."""
    if args.perflogs and args.drain:
        raise BadInput("--perflogs with --drain: a log may not name hosts as Slurm does")
    is_unknown = args.perflogs and args.system not in available()
    system = Undescribed(args.system) if is_unknown else load(args.system)
    fleet, gathered = inputs.judge(args.records, system, logs=args.perflogs)
    words = {host: ORDER[fleet.word(host)] for host in fleet.by_severity}
    brief = len(fleet.samples.counts) > MOST_RESULTS
    words = _only(args.explain, words)
    detailed = [host for host, word in words.items() if not brief or args.explain or word in _DETAILED]
    hosts = [fleet.verdict(host, brief=not args.json) for host in detailed]
    explained = explain(fleet, fleet.number[args.explain]) if args.explain in fleet.number else ()
    status = BadInput.exit_status if gathered.unread else status_of(words.values(), strict=args.strict)
    if args.json:
        options.print_json(
            {
                "system": system.name,
                "verdict": worst(words.values()),
                "status": status,
                "notes": fleet.notes(),
                "hosts": [h.to_dict() for h in hosts],
                **({"explained": [part.to_dict() for part in explained]} if args.explain else {}),
                **({"divided": [asdict(two) for two in fleet.divided]} if fleet.divided else {}),
                **({"common_loss": common.text} if (common := fleet.common_loss) else {}),
                **({"unread": list(gathered.unread)} if gathered.unread else {}),
                **({"others": {h: w for h, w in words.items() if w not in _DETAILED}} if brief else {}),
            }
        )
    else:
        for note in fleet.notes():
            print(one_line(note))
        for host in hosts:
            print(colour_verdicts(one_line(host.line())))
            for line in [line for line in host.evidence if len(hosts) == 1 and line not in host.line()]:
                print(one_line(f"  {line}"))
        for line in _explained(explained) if args.explain else ():
            print(one_line(line))
        for word, names in by_key(words, lambda host: words[host]).items() if brief and not args.explain else ():
            if word not in _DETAILED:
                print(colour_verdicts(f"verdict {fold(names)} {word}"))
    if args.drain:
        source = " ".join(path.absolute().name for path in args.records)
        for line, trouble in exclusion.drain_hosts(
            hosts, source, dry_run=args.dry_run, reservation=args.reservation
        ):
            text = one_line(f"firsttouch: error: {line}" if trouble else line)
            print(text, file=sys.stderr if args.json or trouble else sys.stdout)
            status = max(status, trouble)
    gathered.print_unread()
    if note := undecided_note(list(words.values()), strict=args.strict):
        sys.stdout.flush()
        print(f"firsttouch: {note}", file=sys.stderr)
    return status
