# SPDX-License-Identifier: Apache-2.0
"""``firsttouch campaign``: resumable measurements on many hosts, with one folder per campaign."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from tabulate import tabulate

from firsttouch import paths
from firsttouch.benchmarks import profiles
from firsttouch.benchmarks.cases import aligners_of
from firsttouch.campaign import campaigns, collect, journal, submit
from firsttouch.campaign.campaigns import KINDS, PLANNED, Campaign
from firsttouch.campaign.journal import Journal
from firsttouch.campaign.run import Outcome, run
from firsttouch.campaign.state import overview, state, unfinished
from firsttouch.cli import options
from firsttouch.errors import BadInput, FirstTouchError, RunFailed, one_line
from firsttouch.execution import backends, slurm
from firsttouch.execution.progress import coloured, say
from firsttouch.host import topology
from firsttouch.host.emulation import HOST, host_name
from firsttouch.host.host_lists import unfolded
from firsttouch.judge.findings import Findings
from firsttouch.judge.judging import MOST_REPETITIONS
from firsttouch.judge.verdict import HostVerdict, conclusion, exit_status
from firsttouch.quarantine import drain
from firsttouch.systems.definition import System, load, mismatch

#: Further jobs of a host with undecided metrics: each doubles the repetitions, from 1 beyond MOST_REPETITIONS.
_ROUNDS = 4
EXAMPLES = """\
  sbatch slurm/strategy.sbatch --aligner bwa-mem --dataset lambda      (on one host)
  sbatch --array=1-8 slurm/strategy.sbatch --aligner bwa-mem           (spread over eight)
  sbatch -N 8 slurm/validate.sbatch --system amd-opteron
  firsttouch campaign run strategy --aligner bwa-mem                   (here and now, without Slurm)
  firsttouch campaign run strategy --aligner bwa-mem --aligner bowtie2 --dataset lambda
  firsttouch campaign run characterize --system local --dry-run        (only show its commands)
  firsttouch campaign run strategy --backend apptainer                 (the programs of containers/firsttouch.sif)
  firsttouch campaign run strategy --campaign strategy-1234            (continue it: only its missing steps)
  firsttouch campaign run validate --system amd-opteron --drain
  firsttouch campaign submit validate --system amd-opteron --hosts 'n[001-200]'
  firsttouch campaign submit characterize --hosts n7,n9 --sbatch=--time=8:00:00
  firsttouch campaign list
  firsttouch campaign status validate-2026-05-04T09-00-00-4711
  firsttouch campaign cancel validate-2026-05-04T09-00-00-4711 --dry-run
  firsttouch campaign collect strategy-1234
  firsttouch campaign collect /scratch/campaigns/validate-77 --json"""


def register(subparsers: options.Subparsers) -> None:
    """Add the command and its actions."""
    parser = options.command(subparsers, "campaign", EXAMPLES)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    running = options.action(actions, "run", "run the missing steps of a campaign on this host", EXAMPLES)
    _add_plan(running)
    options.add(running, "--drain", help="validate: drain this host in Slurm if it fails")
    options.add(running, "--strict", help="validate: exit status 3 also if this host is undecided")
    options.add(running, "--reservation", "--image")
    options.add(running, "--backend", choices=backends.NAMES)
    running.add_argument(
        "--max-repetitions",
        type=options.positive,
        metavar="N",
        default=MOST_REPETITIONS,
        help=f"validate: most repetitions of undecided metrics (default: {MOST_REPETITIONS})",
    )
    running.add_argument("--no-collect", action="store_true", help="write no report, because another job does")
    running.add_argument("--dry-run", action="store_true", help="show the commands, run none")
    running.set_defaults(run=run_here)
    submitting = options.action(
        actions, "submit", "submit a job per host, and one that collects the results", EXAMPLES
    )
    _add_plan(submitting)
    options.add(submitting, "--hosts", required=True, help="hosts in Slurm's notation: n[1-8],m2")
    options.add(submitting, "--drain", help="validate: drain the hosts that fail in Slurm")
    _add_again(submitting)
    submitting.add_argument(
        "--wait", action="store_true", help="also submit jobs for hosts that are down or drained"
    )
    submitting.set_defaults(run=submit_hosts)
    listing = options.action(actions, "list", "list the campaigns in the folder for results", EXAMPLES)
    listing.set_defaults(run=list_campaigns)
    summary = "show what is finished, waiting and missing; exit status 1 if something is missing"
    asking = options.action(actions, "status", summary, EXAMPLES)
    _add_name(asking)
    asking.set_defaults(run=show_status)
    cancelling = options.action(
        actions, "cancel", "cancel its waiting and running jobs; what they measured is kept", EXAMPLES
    )
    _add_name(cancelling)
    cancelling.add_argument("--dry-run", action="store_true", help="show the command, do not run it")
    cancelling.set_defaults(run=cancel_jobs)
    collecting = options.action(actions, "collect", "report the results, and what is missing", EXAMPLES)
    _add_name(collecting)
    collecting.add_argument("--no-figures", action="store_true", help="only the overview and the state")
    options.add(collecting, "--drain", help="validate: drain the hosts that fail in Slurm")
    options.add(collecting, "--strict", help="validate: exit status 3 also if a host is undecided")
    options.add(collecting, "--reservation")
    collecting.add_argument(
        "--step", action="append", metavar="PATTERN", help="with --max-repetitions: only steps whose names match"
    )
    _add_again(collecting)
    collecting.set_defaults(run=collect_campaign)


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("campaign", metavar="CAMPAIGN", help="name or folder of the campaign")


def _add_again(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--max-repetitions",
        type=options.positive,
        metavar="N",
        help="validate: submit undecided hosts again, up to this many repetitions (default: never)",
    )
    parser.add_argument(
        "--sbatch",
        action="append",
        default=[],
        metavar="OPTION",
        help="an option for sbatch, e.g. --sbatch=--time=8:00:00; may be repeated",
    )


def _add_plan(parser: argparse.ArgumentParser) -> None:
    titles = "; ".join(f"{kind}: {KINDS[kind].title}" for kind in PLANNED)
    parser.add_argument("kind", choices=PLANNED, help=titles)
    options.add(parser, "--system")
    options.add(parser, "--dataset", help=f"the aligners' dataset (default: {profiles.default_dataset()})")
    options.add(
        parser,
        "--aligner",
        action="append",
        help="run this aligner's scenarios, or those of 'all'; may be repeated (default: strategy "
        "$FIRSTTOUCH_MEASURED_ALIGNERS or all, others none)",
    )
    options.add(parser, "--repetitions", help="timed runs of each case (default: 3)")
    parser.add_argument(
        "--step", action="append", metavar="PATTERN", help="only steps whose names match (--dry-run lists them)"
    )
    parser.add_argument(
        "--campaign", metavar="CAMPAIGN", help="name or folder of the campaign (default: a new one)"
    )


def run_here(args: argparse.Namespace) -> int:
    """Run the missing steps on this host, and collect unless another job will; 0, 1 or the verdict's status."""
    _check(args)
    job = slurm.Job.here()
    return carry_out(_campaign(args, job), args, job)


def carry_out(campaign: Campaign, args: argparse.Namespace, job: slurm.Job | None) -> int:
    """Run the missing steps of *campaign* on this host, in *job* if there is one; see :func:`run_here`."""
    if args.dry_run:
        return _show(campaign, args)
    # The first job of an array prints it.
    if job and journal.note_this(campaign.folder, job):
        say(f"campaign {campaign.name}: {len(campaign.steps)} steps, results in {campaign.folder}")
    if job and not job.alone and not args.no_collect:
        _collect_later(campaign, job, ["--drain"] if args.drain else [])
    say(f"{campaign.kind} on {host_name()}, system {campaign.system}{_unnamed(args)}")
    system = load(campaign.system)
    for contradiction in _contradictions(system, job):
        say(f"firsttouch: {contradiction}")
    only = args.step or ()
    if difference := mismatch(system, topology.of_this_host()):
        if not campaign.judged or all(step.name != "topology" for step in campaign.steps):
            raise BadInput(f"{difference}: --system names another one")
        say(f"{difference}: only its topology is measured, and its verdict follows from that")
        only = ("topology",)
    try:
        more = {"max_repetitions": args.max_repetitions, "programs": args.backend, "image": args.image}
        outcome = run(campaign, say, only=only, **more)
    finally:
        say(f"results: {campaign.folder}")
    document = _finish(campaign, outcome, alone=not args.no_collect and (job is None or job.alone))
    if args.json:
        options.print_json(document)
    elif outcome.speaks:
        for note in outcome.fleet.notes() if outcome.fleet else ():
            print(one_line(note))
        for verdict in outcome.verdicts:
            print(coloured(one_line(verdict.line())))
    if outcome.verdict is None:
        return 0 if outcome.good else 1
    return _status(outcome, outcome.verdict, campaign, args)


def _status(outcome: Outcome, own: HostVerdict, campaign: Campaign, args: argparse.Namespace) -> int:
    """Drain this host if asked to, print the last lines, and return the exit status of a job that judged."""
    status = exit_status([v for v in outcome.verdicts if v.host in outcome.stands_for], strict=args.strict)
    # srun returns the highest status of its tasks, and 3 (suspect) is not worse than 1 (fail).
    status = status and exit_status(outcome.verdicts, strict=args.strict)
    if args.drain:
        status = max(status, _drain([own], campaign, args, outcome.fleet))
    if outcome.speaks:
        _conclude(outcome.verdicts, args)
        if outcome.spent:
            say(f"firsttouch: {outcome.spent.text()}")
    return status


def _conclude(verdicts: Sequence[HostVerdict], args: argparse.Namespace) -> None:
    """Print what the exit status 0 does not tell, if anything, as the last line."""
    if note := conclusion([verdict.verdict for verdict in verdicts], strict=args.strict):
        sys.stdout.flush()
        say(f"firsttouch: {note}")


def _contradictions(system: System, job: slurm.Job | None) -> Iterator[str]:
    """Yield what this host's name and the job's partition say against the system's file."""
    if strangers := system.strangers([host_name()]):
        yield strangers
    wanted, actual = submit.partition_of(system), slurm.partition()
    if job and wanted and actual not in wanted.split(","):
        yield f"this job is in the partition {actual}; the hosts of the system {system.name} are in {wanted}"


def _drain(
    verdicts: Sequence[HostVerdict], campaign: Campaign, args: argparse.Namespace, fleet: Findings | None = None
) -> int:
    """Drain the hosts that failed, and return the exit status; none if most of the *fleet* lost alike."""
    worst = 0
    stop = fleet.common_loss.text if fleet and fleet.common_loss else ""
    for line, status in drain.apply_all(
        verdicts, campaign.name, dry_run=False, reservation=args.reservation, stop=stop
    ):
        say(f"firsttouch: error: {line}" if status else line)
        worst = max(worst, status)
    return worst


def _unnamed(args: argparse.Namespace) -> str:
    """Return a hint if neither --system nor a campaign names the system."""
    return "" if args.system or args.campaign else " (any host: --system names one with references)"


def check_host_name() -> None:
    """Raise BadInput if this host's name cannot name a folder of results."""
    if not HOST.fullmatch(host_name()):
        raise BadInput(
            f"this host is called {host_name()!r} (SLURMD_NODENAME or hostname), which cannot name a folder"
        )


def _check(args: argparse.Namespace) -> None:
    check_host_name()
    if args.drain and not KINDS[args.kind].judged:
        raise BadInput(f"--drain: a campaign of the kind {args.kind} gives no verdict")


def _finish(campaign: Campaign, outcome: Outcome, *, alone: bool) -> dict[str, Any]:
    """Collect if *alone* (no other job measures), and return the command's JSON document."""
    document: dict[str, Any] = {"campaign": str(campaign.folder), "steps": outcome.ended}
    if outcome.verdict:
        document["verdict"] = outcome.verdict.to_dict()
    if outcome.spent:
        document["spent"] = outcome.spent.to_dict()
    if alone:
        collected = collect.collect(campaign)
        document["state"] = collected.state.to_dict()
        for line in collected.text.splitlines():
            say(line)
        say(f"report: {campaign.folder / 'report' / 'index.html'}")
    return document


def _campaign(args: argparse.Namespace, job: slurm.Job | None) -> Campaign:
    """Return the campaign that *args* name; a new one is written to its folder."""
    folder = folder_of_campaign(args, job)
    wanted = {"system": args.system, "dataset": args.dataset}
    wanted |= {"aligners": _names(args.aligner), "repetitions": args.repetitions}
    if campaign := continued(folder, args, wanted):
        return campaign
    planned = campaigns.plan(
        args.kind,
        folder,
        system=args.system or paths.LOCAL,
        dataset=args.dataset or profiles.default_dataset(),
        aligners=args.aligner or (),
        repetitions=args.repetitions or 3,
        only=args.step or (),
    )
    return planned if getattr(args, "dry_run", False) else campaigns.create(planned)


def folder_of_campaign(args: argparse.Namespace, job: slurm.Job | None) -> Path:
    """Return the folder of the campaign that *args* name, or of a new one."""
    if args.campaign is not None:
        return campaigns.folder_of(args.campaign)
    unique = job.array if job else datetime.now().astimezone().strftime("%Y-%m-%dT%H-%M-%S")
    return paths.results() / "campaigns" / f"{args.kind}-{unique}"


def continued(folder: Path, args: argparse.Namespace, wanted: Mapping[str, Any]) -> Campaign | None:
    """Return the campaign in *folder*, None if there is none yet; raises BadInput if it is not the *wanted* one.

    Options that are not given again, whose values in *wanted* are None, keep the campaign's values.
    """
    if not (folder / "campaign.json").exists():
        return None
    campaign = campaigns.read(folder)
    campaigns.check(campaign, {k: v for k, v in {"kind": args.kind, **wanted}.items() if v is not None})
    campaigns.chosen(campaign.steps, args.step or ())
    return campaign


def _names(given: list[str] | None) -> tuple[str, ...] | None:
    return tuple(aligners_of(profiles.chosen().of_aligners(given))) if given else None


def _collect_later(campaign: Campaign, job: slurm.Job, collecting: Sequence[str]) -> None:
    try:
        if number := submit.collect_later(campaign, job, collecting):
            say(f"job {number} will collect when all of job {job.array} has ended")
    except FirstTouchError as error:
        say(f"firsttouch: {error}; collect by hand: firsttouch campaign collect {campaign.folder}")


def _show(campaign: Campaign, args: argparse.Namespace) -> int:
    """Print the commands of the missing steps."""
    own = _left(campaign, campaign.host(host_name()))
    # A shared step is run by one host, but each host measures the bridge before it takes another step.
    others = campaign.hosts() if campaign.shared else []
    left = own.intersection(*(_left(campaign, journal) for journal in others))
    steps = campaigns.chosen(campaign.steps, args.step or ())
    bridges = {bridge.name for step in steps if step.name in left and (bridge := campaign.bridge(step))}
    shown = [s for s in campaign.steps if (s in steps and s.name in left) or s.name in bridges & own]
    if args.json:
        rows = [{"name": step.name, "argv": ["firsttouch", *step.argv]} for step in shown]
        options.print_json({"campaign": str(campaign.folder), "steps": rows})
        return 0
    for step in shown:
        print(shlex.join(["firsttouch", *step.argv]))
    if args.drain:
        print(f"scontrol update nodename={host_name()} state=drain reason=…   (if the verdict is fail)")
    return 0


def _left(campaign: Campaign, journal: Journal) -> set[str]:
    """Return the names of the steps that a host has not finished."""
    return set(unfinished(campaign, journal))


def submit_hosts(args: argparse.Namespace) -> int:
    """Submit a job per host and one that collects, and print their numbers."""
    _check(args)
    slurm.require(instead=f"`firsttouch campaign run {args.kind}` measures this host")
    hosts = _hosts(args.hosts)
    options_of_sbatch = submit.split_options(args.sbatch)
    slurm.require_answer()
    if args.campaign is None:
        args.campaign = f"{args.kind}-{datetime.now().astimezone().strftime('%Y-%m-%dT%H-%M-%S')}-{os.getpid()}"
    campaign = _campaign(args, None)
    if strangers := load(campaign.system).strangers(hosts):
        say(f"firsttouch: {strangers}")
    submitted = _submit(campaign, hosts, options_of_sbatch, args)
    jobs, refused = submitted.jobs, [f"{host}: {why}" for host, why in submitted.refused.items()]
    if not jobs:
        raise RunFailed(f"no job was submitted: {'; '.join(refused)}")
    if args.json:
        document = {"campaign": str(campaign.folder), "jobs": jobs, "collector": submitted.collector}
        options.print_json({**document, "refused": submitted.refused})
    else:
        which = f"job {jobs[0]}" if len(jobs) == 1 else f"{len(jobs)} jobs ({jobs[0]} to {jobs[-1]})"
        print(f"{which}, and {submitted.collector or 'none'} collects; results: {campaign.folder}")
    for line in refused:
        say(f"firsttouch: error: no job for {line}")
    return 1 if refused else 0


def _submit(
    campaign: Campaign, hosts: Sequence[str], options_of_sbatch: Sequence[str], args: argparse.Namespace
) -> submit.Submitted:
    """Submit jobs and one that collects; with --max-repetitions, that one submits undecided hosts again."""
    drain_too = ["--drain"] if args.drain else []
    again = [
        *([f"--max-repetitions={args.max_repetitions}"] if args.max_repetitions else []),
        *(f"--step={p}" for p in args.step or ()),
    ]
    sbatch = [f"--sbatch={option}" for option in options_of_sbatch]
    collecting = [*drain_too, *((*again, *sbatch) if args.max_repetitions else ())]
    wait = getattr(args, "wait", False)
    return submit.submit(
        campaign, hosts, options_of_sbatch, [*drain_too, *again], collecting=collecting, wait=wait
    )


def _again(campaign: Campaign, collected: collect.Collected, args: argparse.Namespace) -> None:
    """Submit another job for each host that more repetitions may decide, up to _ROUNDS times."""
    rounds = Counter(host for s in journal.submissions(campaign.folder) if s.job for host in s.hosts)
    hosts = [h for h in collect.undecided_hosts(collected, args.max_repetitions) if rounds[h] <= _ROUNDS]
    if hosts:
        submitted = _submit(campaign, hosts, submit.split_options(args.sbatch), args)
        say(
            f"{len(submitted.jobs)} jobs measure undecided metrics again, {submitted.collector} collects: "
            f"{', '.join(hosts)}"
        )


def _hosts(given: str) -> list[str]:
    """Return the hosts of --hosts, each once; raises BadInput for anything else."""
    try:
        hosts = unfolded(given)
    except BadInput as error:
        raise BadInput(f"--hosts: {error}") from error
    if odd := [host for host in hosts if not HOST.fullmatch(host)]:
        raise BadInput(f"--hosts {given!r}: {odd[0]!r} is not the name of a host")
    return hosts


def list_campaigns(args: argparse.Namespace) -> int:
    """Print the campaigns, oldest first; unreadable ones are named on standard error (exit 2)."""
    rows: list[dict[str, Any]] = []
    status = 0
    for name in campaigns.names():
        try:
            campaign = campaigns.read(campaigns.folder_of(name))
        except BadInput as error:
            say(f"firsttouch: error: {error}")
            status = error.exit_status
            continue
        described = {key: getattr(campaign, key) for key in ("kind", "system", "created")}
        rows.append({"name": name, **described, "hosts": [host.host for host in campaign.hosts()]})
    rows.sort(key=lambda row: str(row["created"]))
    if args.json:
        options.print_json({"campaigns": rows})
    else:
        shown = [{**row, "hosts": len(row["hosts"])}.values() for row in rows]
        print(tabulate(shown, ("campaign", "kind", "system", "created", "hosts")))
    return status


def show_status(args: argparse.Namespace) -> int:
    """Print what is finished, waiting and missing, without writing a report; 1 if something is missing."""
    campaign = campaigns.existing(args.campaign)
    campaign_state = state(campaign)
    jobs = slurm.unended(journal.jobs(campaign.folder))
    if args.json:
        options.print_json({**campaign_state.to_dict(), "jobs": jobs})
    else:
        print(overview(campaign_state, ()))
        if jobs is None:
            print("\nSlurm's queue (squeue) does not answer: which jobs wait or run is unknown.")
        elif jobs:
            counts = Counter(word.lower() for word in jobs.values())
            print(f"\njobs: {', '.join(f'{count} {word}' for word, count in counts.items())}")
    return 0 if campaign_state.whole else 1


def cancel_jobs(args: argparse.Namespace) -> int:
    """Cancel the jobs that measure. The job that collects then begins, and reports what is missing."""
    campaign = campaigns.existing(args.campaign)
    jobs = slurm.unended(journal.jobs(campaign.folder))
    if jobs is None:
        raise RunFailed("Slurm's queue (squeue) does not answer: nothing was cancelled")
    argv = ["scancel", *sorted(jobs, key=int)]
    if jobs and not args.dry_run:
        slurm.run(argv)
    if args.json:
        options.print_json({"campaign": str(campaign.folder), "cancelled": [] if args.dry_run else argv[1:]})
    elif not jobs:
        print(f"no job of {campaign.name} waits or runs")
    elif args.dry_run:
        print(" ".join(argv))
    else:
        print(f"jobs that are cancelled: {', '.join(argv[1:])}")
    return 0


def collect_campaign(args: argparse.Namespace) -> int:
    """Report the results; 0 if all are there and good, 1 if not, or the verdicts' status."""
    folder = campaigns.folder_of(args.campaign)
    number = re.search(r"-(\d+)\Z", folder.name)
    if number and not folder.exists() and (tries := slurm.accounted([number[1]])):
        raise BadInput(f"no campaign: {tries[-1].text} and wrote nothing: its output shows why", file=folder)
    campaign = campaigns.existing(args.campaign)
    collected = collect.collect(campaign, draw=not args.no_figures)
    if args.json:
        options.print_json({**collected.state.to_dict(), "verdicts": [v.to_dict() for v in collected.verdicts]})
    else:
        print(coloured(collected.text))
        print(f"\nreport: {campaign.folder / 'report'}")
    if campaign.judged:
        if args.max_repetitions:
            _again(campaign, collected, args)
        status = exit_status(collected.verdicts, strict=args.strict)
        if args.drain:
            status = max(status, _drain(collected.verdicts, campaign, args, collected.judged))
        _conclude(collected.verdicts, args)
        return status
    return 0 if collected.state.whole else 1
