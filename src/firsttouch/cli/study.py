# SPDX-License-Identifier: Apache-2.0
"""``firsttouch study``: repeats a study on this host: configurations of aligners, with their threads."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tabulate import tabulate

from firsttouch import paths
from firsttouch.benchmarks import profiles, studies
from firsttouch.benchmarks.studies import MATES, Case, Reads, Study
from firsttouch.campaign import campaigns
from firsttouch.campaign.campaigns import Campaign
from firsttouch.cli import campaign as campaign_cli
from firsttouch.cli import options, read_inputs
from firsttouch.datasets import fetch, manifest
from firsttouch.errors import BadInput, Missing, none_such
from firsttouch.execution import backends, slurm
from firsttouch.execution.progress import say
from firsttouch.genomics.aligners import aligner
from firsttouch.host import topology
from firsttouch.judge.judging import MOST_REPETITIONS
from firsttouch.systems.definition import load

EXAMPLES = """\
  firsttouch study list
  firsttouch study show scaling2018
  firsttouch study run scaling2018 --only-installed --dry-run
  firsttouch study run scaling2018 --threads 1,2 --reads-per-thread 10000 --dataset lambda
  firsttouch study run locks-today --configuration 'Bowtie 2' --unpaired --repetitions 3
  firsttouch study run locks-today --configuration 'bowtie 2: *' --index idx/hg --reads r1.fq --reads2 r2.fq
  firsttouch study run lenis2017 --campaign study-1234           (continue it: only its missing runs)
  sbatch slurm/study.sbatch scaling2018 --dataset lambda         (on one host)
  sbatch --array=1-4 slurm/study.sbatch scaling2018              (spread over four)

A study is a file studies/NAME.toml: see "Study files" in the manual. Each run is a step of a campaign, so
`firsttouch campaign status`, `cancel` and `collect` work on it."""


def register(subparsers: options.Subparsers) -> None:
    """Add the command and its actions."""
    parser = options.command(subparsers, "study", EXAMPLES)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = options.action(actions, "list", "list the studies", EXAMPLES)
    listing.set_defaults(run=list_studies)
    summary = "show a study's configurations, which ones can run here, and what their programs are built from"
    showing = options.action(actions, "show", summary, EXAMPLES)
    _add_name(showing)
    showing.set_defaults(run=show)
    running = options.action(actions, "run", "run the missing cases of a study on this host", EXAMPLES)
    _add_name(running)
    options.add(running, "--system")
    _add_input(running)
    _add_choice(running)
    options.add(running, "--backend", choices=backends.NAMES)
    options.add(running, "--image")
    running.add_argument(
        "--campaign", metavar="CAMPAIGN", help="name or folder of the campaign (default: a new one)"
    )
    running.add_argument("--no-collect", action="store_true", help="write no report, because another job does")
    running.add_argument("--dry-run", action="store_true", help="show the commands, run none")
    # What `campaign run` has for other kinds of campaigns.
    unused = {"drain": False, "strict": False, "reservation": "", "max_repetitions": MOST_REPETITIONS}
    running.set_defaults(run=run, kind="study", **unused)


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("study", metavar="STUDY", help="the study, as `firsttouch study list` names it")


def _add_input(parser: argparse.ArgumentParser) -> None:
    default = profiles.default_dataset()
    options.add(parser, "--dataset", help=f"take indexes and reads from this dataset (default: {default})")
    parser.add_argument(
        "--index",
        action="append",
        metavar="PREFIX",
        help="prefix of the index of all aligners, or FAMILY=PREFIX for those of a family; may be repeated",
    )
    parser.add_argument("--reads", type=Path, metavar="FILE", help="FASTQ file, plain or gzip")
    parser.add_argument("--reads2", type=Path, metavar="FILE", help="the second file of a pair")


def _add_choice(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--threads", type=options.numbers, metavar="LIST", help="thread counts (default: those of the study)"
    )
    parser.add_argument(
        "--configuration",
        action="append",
        metavar="PATTERN",
        help="only configurations, families or 'FAMILY: CONFIGURATION' that match; may be repeated",
    )
    kinds = parser.add_mutually_exclusive_group()
    for kind in MATES:
        kinds.add_argument(
            f"--{kind}", dest="kind_of_reads", action="store_const", const=kind, help=f"only {kind} reads"
        )
    parser.add_argument(
        "--reads-per-thread", type=options.positive, metavar="N", help="instead of the study's numbers"
    )
    parser.add_argument(
        "--reads-per-block", type=options.positive, metavar="N", help="of blocked reads, instead of the aligner's"
    )
    options.add(parser, "--repetitions", help="timed runs of each case (default: those of the study)")
    parser.add_argument(
        "--only-installed", action="store_true", help="leave out the configurations without an installed program"
    )
    parser.add_argument(
        "--step", action="append", metavar="PATTERN", help="only steps whose names match (--dry-run lists them)"
    )


# ----------------------------------------------------------------------
# List and show


def list_studies(args: argparse.Namespace) -> int:
    """Print the studies; unreadable ones are named on standard error (exit 2)."""
    rows: list[dict[str, Any]] = []
    status = 0
    for name, file in studies.files().items():
        try:
            study = studies.read(file)
        except BadInput as error:
            say(f"firsttouch: error: {error}")
            status = error.exit_status
            continue
        count = len(list(study.pairs()))
        rows.append({"name": name, "title": study.title, "configurations": count, "file": str(file)})
    if args.json:
        options.print_json({"studies": rows})
    else:
        print(tabulate([[*row.values()][:3] for row in rows], ("study", "title", "configurations")))
    return status


def show(args: argparse.Namespace) -> int:
    """Print a study, the configurations that can run here, and the facts about their programs."""
    study = studies.study(args.study)
    host = topology.of_this_host()
    cases, left_out = study.cases(host)
    missing = study.missing(_one_case_each(study))
    rows = [
        {
            "family": case.family.name,
            "configuration": case.configuration.name,
            "aligner": case.aligner,
            "scenario": case.configuration.scenario,
            "options": list(case.options),
            "source": case.family.source,
            "tag": case.family.tags.get(case.configuration.build, ""),
            "macros": list(case.configuration.macros),
            "missing": missing.get(case.aligner, ""),
            "left_out": left_out.get(f"{case.family.name}: {case.configuration.name}", ""),
        }
        for case in _one_case_each(study)
    ]
    threads = sorted({case.threads for case in cases})
    if args.json:
        facts = {key: getattr(study, key) for key in ("name", "title", "reference", "reads", "repetitions")}
        facts |= {"time_limit": study.time_limit, "threads": threads, "runs": len(cases), "configurations": rows}
        options.print_json({**facts, "families": {name: asdict(f) for name, f in study.families.items()}})
        return 0
    limit = f", omitted after {study.time_limit:g} s" if study.time_limit else ""
    print(f"{study.name}: {study.title}")
    print(textwrap.fill(study.reference, 100) + "\n" if study.reference else "")
    print(
        f"{' and '.join(study.reads)} reads, {study.repetitions} x each{limit}\n"
        f"on this host: {len(cases)} runs with {', '.join(map(str, threads))} threads\n"
    )
    here = [
        (r["family"], r["configuration"], r["aligner"], "no" if r["missing"] or r["left_out"] else "yes")
        for r in rows
    ]
    print(tabulate(here, ("family", "configuration", "aligner", "runs here")))
    _print_reasons(rows, left_out)
    return 0


def _print_reasons(rows: Sequence[Mapping[str, Any]], left_out: Mapping[str, str]) -> None:
    """Print why configurations cannot run here, and what programs that are missing are built from."""
    for name, reason in left_out.items():
        print(f"\n{name}: {reason}", end="")
    built = {row["aligner"]: row for row in reversed(rows) if row["missing"]}
    print("\n\nNot installed here, and what the study built them from:" if built else "")
    for name, row in reversed(built.items()):
        source = " ".join(filter(None, (row["source"], row["tag"])))
        print(f"  {name}: {row['missing']}")
        print(f"      {source} {' '.join(row['macros'])}".rstrip())


def _one_case_each(study: Study) -> list[Case]:
    """Return a case of each family and configuration, whether this host can run it or not."""
    return [Case(f, c, study.reads[0], 1, c.scenario) for f, c in study.pairs()]


# ----------------------------------------------------------------------
# Run


def run(args: argparse.Namespace) -> int:
    """Run the missing cases on this host, and collect unless another job will; 0, or 1 if one failed."""
    campaign_cli.check_host_name()
    study = studies.study(args.study)
    job = slurm.Job.here()
    folder = campaign_cli.folder_of_campaign(args, job)
    wanted: dict[str, Any] = {"study": study.name, "system": args.system, "repetitions": args.repetitions}
    campaign = campaign_cli.continued(folder, args, wanted)
    if campaign is None or _is_planned_anew(args):
        planned = _planned(args, study, folder)
        if campaign is not None:
            campaigns.check(campaign, {"steps": asdict(planned)["steps"]})
        elif args.dry_run:
            campaign = planned
        else:
            campaign = campaigns.create(planned)
    return campaign_cli.carry_out(campaign or planned, args, job)


def _is_planned_anew(args: argparse.Namespace) -> bool:
    """Return whether an option is given that chooses the runs, which a campaign that is continued must have."""
    names = (
        "dataset",
        "index",
        "reads",
        "reads2",
        "threads",
        "configuration",
        "kind_of_reads",
        "reads_per_thread",
        "reads_per_block",
    )
    return any(getattr(args, name) for name in names)


def _planned(args: argparse.Namespace, study: Study, folder: Path) -> Campaign:
    """Return the campaign of the runs that *args* choose; raises BadInput or Missing for what cannot work."""
    host = topology.of_this_host()
    kinds: tuple[Reads, ...] = (args.kind_of_reads,) if args.kind_of_reads else ()
    patterns = args.configuration or ()
    cases, left_out = study.cases(host, threads=args.threads or (), patterns=patterns, reads=kinds)
    for name, reason in left_out.items():
        say(f"{name}: left out: {reason}")
    inputs, mates = _inputs(args, study)
    if mates == 1 and any(case.reads == "paired" for case in cases):
        if args.kind_of_reads:
            raise BadInput("--paired needs a second file of reads: --reads2, or a dataset with two files")
        say("paired reads: left out: there is one file of reads")
        cases = [case for case in cases if case.reads == "unpaired"]
    if _is_native(args):
        cases = _installed(study, cases, only=args.only_installed, dry_run=args.dry_run)
    if not args.dry_run:
        cases = _with_blocks(args, cases)
    if args.reads_per_thread and not any(case.reads_per_thread for case in cases):
        raise BadInput(f"--reads-per-thread: the runs of study {study.name} align all reads once")
    if not cases:
        raise BadInput(f"nothing of study {study.name} can run here")
    return campaigns.of_study(
        study.name,
        cases,
        folder,
        system=args.system or paths.LOCAL,
        dataset="" if args.reads else args.dataset or profiles.default_dataset(),
        inputs=inputs,
        repetitions=args.repetitions or study.repetitions,
        time_limit=study.time_limit,
        reads_per_thread=args.reads_per_thread,
        more=["--if-installed"] if args.only_installed else [],
        only=args.step or (),
    )


def _is_native(args: argparse.Namespace) -> bool:
    """Return whether the programs are those of this host, where their absence can be seen before any run."""
    name, _ = load(args.system or paths.LOCAL).programs(slurm.partition(), args.backend, args.image)
    return name == backends.NATIVE


def _installed(study: Study, cases: Sequence[Case], *, only: bool, dry_run: bool) -> list[Case]:
    """Return the cases whose program is installed; raises Missing for others, unless *only* those are wanted."""
    missing = study.missing(cases)
    if missing:
        names = ", ".join(missing)
        hint = f"`firsttouch study show {study.name}` says what they are built from"
        if not (only or dry_run):
            raise Missing(f"not installed: {names}: {hint}; --only-installed leaves them out")
        say(f"not installed{', left out' if only else ''}: {names}: {hint}")
    return [case for case in cases if not only or case.aligner not in missing]


def _with_blocks(args: argparse.Namespace, cases: Sequence[Case]) -> list[Case]:
    """Return the cases whose reads can be had: blocks are made from a dataset, if its records fit into them."""
    reasons: dict[str, list[str]] = {}
    left: list[Case] = []
    refused: dict[tuple[object, Reads], str] = {}
    for case in cases:
        key = aligner(case.aligner).blocks, case.reads
        if key not in refused:
            refused[key] = _no_blocks(args, case)
        if refused[key]:
            reasons.setdefault(refused[key], []).append(f"{case.family.name}: {case.configuration.name}")
        else:
            left.append(case)
    for reason, names in reasons.items():
        say(f"{'; '.join(dict.fromkeys(names))}: left out: {reason}")
    return left


def _no_blocks(args: argparse.Namespace, case: Case) -> str:
    """Return why an aligner that reads blocks has none, an empty string if it has or reads none."""
    program = aligner(case.aligner)
    if not program.blocks:
        return ""
    program = program.with_blocks(None, args.reads_per_block)
    if args.reads:
        return "it reads blocks, which --dataset makes of its reads"
    try:
        read_inputs.reads_of(fetch.get(args.dataset or profiles.default_dataset()), program, MATES[case.reads])
    except BadInput as error:
        return str(error)
    return ""


def _inputs(args: argparse.Namespace, study: Study) -> tuple[Callable[[Case], list[str]], int]:
    """Return the function that returns the options of a case for its input, and the number of files of reads."""
    if not (args.index or args.reads or args.reads2):
        name = args.dataset or profiles.default_dataset()
        files = sum(file.role == "reads" for file in manifest.load(name).files)
        if not files:
            raise BadInput(f"dataset '{name}' is a reference without reads")

        def of_dataset(case: Case) -> list[str]:
            argv = ["--dataset", name, *(["--unpaired"] if case.reads == "unpaired" and files > 1 else [])]
            if args.reads_per_block and aligner(case.aligner).blocks:
                argv += ["--reads-per-block", str(args.reads_per_block)]
            return argv

        return of_dataset, files
    if args.dataset:
        raise BadInput("--dataset brings indexes and reads: leave --index, --reads and --reads2 out")
    if not (args.index and args.reads):
        raise BadInput("--index and --reads are needed (or --dataset)")
    for file in filter(None, (args.reads, args.reads2)):
        if not file.exists():
            raise BadInput("there is no such file", file=file)
    prefixes = _prefixes(args.index, study)

    def of_files(case: Case) -> list[str]:
        prefix = prefixes.get(case.family.name) or prefixes.get("")
        if prefix is None:
            raise BadInput(f"--index: none for {case.family.name}: write --index '{case.family.name}=PREFIX'")
        aligner(case.aligner).index_bytes(prefix)  # raises if there is none
        reads2 = ["--reads2", str(args.reads2.absolute())] if case.reads == "paired" else []
        return ["--index", str(prefix), "--reads", str(args.reads.absolute()), *reads2]

    return of_files, 2 if args.reads2 else 1


def _prefixes(given: Sequence[str], study: Study) -> dict[str, Path]:
    """Return the prefixes of --index by family, "" for all others; raises BadInput for an unknown family."""
    families = {family.lower(): family for family in study.families}
    prefixes = {}
    for text in given:
        name, separator, prefix = text.partition("=")
        if not separator or "/" in name:
            prefixes[""] = Path(text).absolute()
        elif name.lower() in families:
            prefixes[families[name.lower()]] = Path(prefix).absolute()
        else:
            raise BadInput(f"--index {text}: {none_such('family', name, study.families)}")
    return prefixes
