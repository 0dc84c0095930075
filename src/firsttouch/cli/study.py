# SPDX-License-Identifier: Apache-2.0
"""``firsttouch study``: repeats a study on this host: configurations of aligners, with their threads."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import asdict
from tabulate import tabulate

from firsttouch import paths
from firsttouch.benchmarks import profiles, studies
from firsttouch.benchmarks.studies import MATES, Case, Study
from firsttouch.campaign import campaigns, here
from firsttouch.campaign.here import CampaignRequest
from firsttouch.campaign.study import Choice, Planner
from firsttouch.cli import options
from firsttouch.cli.campaign import ANY_HOST, print_outcome, show_commands
from firsttouch.errors import BadInput
from firsttouch.execution import backends, slurm
from firsttouch.execution.progress import say
from firsttouch.host import topology
from firsttouch.tools import require_report

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


_INPUT = f"""\
study STUDY     the study, as `firsttouch study list` names it
--system
--dataset       take indexes and reads from this dataset (default: {profiles.default_dataset()})
--index PREFIX  prefix of the index of all aligners, or FAMILY=PREFIX for those of a family; may be repeated
--reads FILE    FASTQ file, plain or gzip
--reads2 FILE   the second file of a pair
--threads LIST  thread counts (default: those of the study)
--configuration PATTERN
                only configurations, families or 'FAMILY: CONFIGURATION' that match; may be repeated"""
_CHOICE = """\
--reads-per-thread N  instead of the study's numbers
--repetitions         timed runs of each case (default: those of the study)
--only-installed      leave out the configurations without an installed program
--step PATTERN        only steps whose names match (--dry-run lists them)
--backend
--image
--campaign CAMPAIGN   name or folder of the campaign (default: a new one)
--no-collect          write no report, because another job does
--dry-run             show the commands, run none"""


def register(subparsers: options.Subparsers) -> None:
    """Add the command and its actions."""
    add_action = options.actions(subparsers, "study", EXAMPLES)
    add_action("list", "list the studies", list_studies)
    summary = "show a study's configurations, which ones can run here, and what their programs are built from"
    options.add_table(add_action("show", summary, show), _INPUT.splitlines()[0])
    running = add_action("run", "run the missing cases of a study on this host", run)
    repeated = {"action": "append"}
    options.add_table(running, _INPUT, index=repeated, configuration=repeated)
    kinds = running.add_mutually_exclusive_group()
    for kind in MATES:
        kinds.add_argument(
            f"--{kind}", dest="kind_of_reads", action="store_const", const=kind, help=f"only {kind} reads"
        )
    options.add_table(running, _CHOICE, step=repeated, backend={"choices": backends.NAMES})
    running.set_defaults(kind="study")


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
    require_report()
    here.check_host_name()
    study = studies.study(args.study)
    job = slurm.Job.here()
    request = CampaignRequest("study", args.campaign, steps=args.step or ())
    folder = request.folder(job)
    wanted: dict[str, Any] = {"study": study.name, "system": args.system, "repetitions": args.repetitions}
    campaign = request.continued(folder, wanted)
    choice = Choice(
        args.dataset,
        tuple(args.index or ()),
        args.reads,
        args.reads2,
        tuple(args.threads or ()),
        tuple(args.configuration or ()),
        args.kind_of_reads,
        args.reads_per_thread,
    )
    if campaign is None or choice.is_given:
        planner = Planner(
            study,
            choice,
            args.system or paths.LOCAL,
            args.backend,
            args.image,
            only_installed=args.only_installed,
            dry_run=args.dry_run,
        )
        planned = planner.plan(folder, repetitions=args.repetitions, steps=request.steps)
        if campaign is not None:
            campaigns.check(campaign, {"steps": planned.steps})
        else:
            campaign = planned if args.dry_run else campaigns.create(planned)
    if args.dry_run:
        show_commands(campaign, request.steps, as_json=args.json)
        return 0
    outcome, document = here.carry_out(
        campaign,
        job,
        steps=request.steps,
        backend=args.backend,
        image=args.image,
        collects=not args.no_collect,
        hint="" if args.system or args.campaign else ANY_HOST,
        say=say,
    )
    print_outcome(outcome, document, as_json=args.json)
    return 0 if outcome.good else 1
