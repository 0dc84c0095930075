# SPDX-License-Identifier: Apache-2.0
"""``firsttouch campaign``: resumable measurements on many hosts, with one folder per campaign."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from firsttouch.benchmarks import profiles
from firsttouch.campaign import campaigns, journal, run, submit
from firsttouch.campaign.campaigns import KINDS, Campaign
from firsttouch.campaign.run import CampaignRequest, HostRun
from firsttouch.campaign.state import overview, state
from firsttouch.cli import options
from firsttouch.errors import BadInput, RunFailed, one_line
from firsttouch.execution import backends, slurm
from firsttouch.execution.progress import colour_verdicts, say, tabular
from firsttouch.fleet import exclusion
from firsttouch.fleet.measuring import JobJudge, cost_text, undecided_note
from firsttouch.fleet.measuring import status as verdict_status
from firsttouch.host.emulation import HOST, host_name
from firsttouch.host.host_lists import fold, unfold
from firsttouch.judge.constants import MOST_REPETITIONS
from firsttouch.judge.findings import Findings
from firsttouch.judge.verdict import HostVerdict
from firsttouch.records.cases import by_key
from firsttouch.systems.definition import load
from firsttouch.tools import require_report

#: The text after the system's name if the user did not choose a system.
ANY_HOST = " (any host: --system names one with references)"
EXAMPLES = """\
  sbatch slurm/strategy.sbatch --aligner bwa-mem --dataset lambda      (on one host)
  sbatch -N 8 slurm/validate.sbatch --system amd-opteron
  firsttouch campaign run strategy --aligner bwa-mem                   (here and now, without Slurm)
  firsttouch campaign run strategy --aligner bwa-mem --aligner bowtie2 --dataset lambda
  firsttouch campaign run characterize --system local --dry-run        (only show its commands)
  firsttouch campaign run strategy --backend apptainer                 (the programs of containers/firsttouch.sif)
  firsttouch campaign run strategy --campaign strategy-1234            (continue it: only its missing steps)
  firsttouch campaign run validate --system amd-opteron --drain
  firsttouch campaign submit validate --system amd-opteron --hosts 'n[001-200]'
  firsttouch campaign submit characterize --hosts n7,n9 --sbatch=--time=8:00:00
  firsttouch campaign submit validate --system amd-opteron --hosts 'n[1-8]' --dry-run
  firsttouch campaign list
  firsttouch campaign status validate-2026-05-04T09-00-00-4711
  firsttouch campaign cancel validate-2026-05-04T09-00-00-4711 --dry-run
  firsttouch campaign collect strategy-1234
  firsttouch campaign collect /scratch/campaigns/validate-77 --json"""


def register(subparsers: options.Subparsers) -> None:
    """Add the command and its actions."""
    add_action = options.actions(subparsers, "campaign", EXAMPLES)
    parser = add_action("run", "run the missing steps of a campaign on this host", run_here)
    _add_plan(parser)
    options.add(parser, "--drain", help="validate: drain this host in Slurm if it fails")
    options.add(parser, "--strict", help="validate: exit status 4 also if this host is undecided")
    options.add(parser, "--backend", choices=backends.NAMES)
    options.add(parser, "--image")
    most = f"validate: most repetitions of undecided metrics (default: {MOST_REPETITIONS})"
    options.add(parser, "--max-repetitions", default=MOST_REPETITIONS, help=most)
    none = "write no report, because another job does"
    parser.add_argument("--no-collect", action="store_true", help=none)
    options.add(parser, "--dry-run")
    parser = add_action("submit", "submit a job per host, and one that collects the results", submit_hosts)
    _add_plan(parser)
    options.add(parser, "--hosts", required=True)
    options.add(parser, "--drain", help="validate: drain the hosts that fail in Slurm")
    _add_again(parser)
    wait = "also submit jobs for hosts that are down, drained or reserved"
    parser.add_argument("--wait", action="store_true", help=wait)
    options.add(parser, "--dry-run")
    add_action("list", "list the campaigns in the folder for results", list_campaigns)
    summary = "show finished, waiting and missing steps; exit status 1 if any are missing"
    options.add(add_action("status", summary, show_status), "campaign")
    parser = add_action("cancel", "cancel its waiting and running jobs; their records are kept", cancel_jobs)
    options.add(parser, "campaign", "--dry-run")
    parser = add_action("collect", "report the results, and what is missing", collect_campaign)
    options.add(parser, "campaign")
    options.add(parser, "--drain", help="validate: drain the hosts that fail in Slurm")
    options.add(parser, "--strict", help="validate: exit status 4 also if a host is undecided")
    options.add(parser, "--step", help="with --resubmit: only steps whose names match")
    _add_again(parser)


def _add_again(parser: argparse.ArgumentParser) -> None:
    again = "validate: submit undecided hosts again, up to N repetitions of undecided metrics (default: never)"
    parser.add_argument("--resubmit", type=options.positive, metavar="N", help=again)
    option = "an option for sbatch, e.g. --sbatch=--time=8:00:00; may be repeated"
    parser.add_argument("--sbatch", action="append", default=[], metavar="OPTION", help=option)


def _add_plan(parser: argparse.ArgumentParser) -> None:
    kinds = "; ".join(f"{name}: {kind.title}" for name, kind in KINDS.items())
    parser.add_argument("kind", choices=KINDS, help=kinds)
    options.add(parser, "--system")
    options.add(parser, "--dataset", help=f"the aligners' dataset (default: {profiles.default('dataset')})")
    options.add(
        parser,
        "--aligner",
        action="append",
        help="run this aligner's scenarios, or all aligners' with 'all'; may be repeated (default: for strategy "
        "$FIRSTTOUCH_MEASURED_ALIGNERS, or all; for other kinds none)",
    )
    options.add(parser, "--repetitions", help="timed runs of each case (default: 3)")
    options.add(parser, "--step")
    options.add(parser, "--campaign")


def _request(args: argparse.Namespace) -> CampaignRequest:
    """Return the campaign that the options request."""
    if args.drain and not KINDS[args.kind].judged:
        raise BadInput(f"--drain: a campaign of the kind {args.kind} gives no verdict")
    return CampaignRequest(
        args.kind,
        args.campaign,
        system=args.system,
        dataset=args.dataset,
        aligners=args.aligner or (),
        repetitions=args.repetitions,
        steps=args.step or (),
    )


def run_here(args: argparse.Namespace) -> int:
    """Run the missing steps on this host, and collect unless another job will; 0, 1 or the verdict's status."""
    require_report()
    run.check_host_name()
    request = _request(args)
    job = slurm.SlurmJob.here()
    campaign = request.prepare(job, dry_run=args.dry_run)
    if args.dry_run:
        show_commands(campaign, request.steps, as_json=args.json)
        if args.drain and not args.json:
            print(f"scontrol update nodename={host_name()} state=drain reason=…   (if the verdict is fail)")
        return 0
    judge = JobJudge(load(campaign.system), campaign.name, args.max_repetitions)
    outcome = run.carry_out(
        campaign,
        job,
        judge,
        steps=request.steps,
        backend=args.backend,
        image=args.image,
        collects=not args.no_collect,
        collecting=["--drain"] if args.drain else [],
        hint="" if args.system or args.campaign else ANY_HOST,
        say=say,
    )
    alone = not args.no_collect and (job is None or job.alone)
    conclude(campaign, outcome, judge, collects=alone, as_json=args.json)
    if judge.verdict is None:
        return 0 if outcome.good else 1
    return _status(outcome, judge, judge.verdict, campaign, strict=args.strict, drains=args.drain)


def conclude(campaign: Campaign, outcome: HostRun, judge: JobJudge, *, collects: bool, as_json: bool) -> None:
    """Collect if no other job measures, and print the verdicts of a run, or its JSON document."""
    document: dict[str, Any] = {"campaign": str(campaign.folder), "steps": outcome.ended}
    if judge.verdict:
        document["verdict"] = judge.verdict.to_dict()
    if collects:
        from firsttouch.report import writing  # noqa: PLC0415 - loads templates and figures

        collected = writing.collect(campaign)
        document["state"] = collected.state.to_dict()
        for line in collected.text.splitlines():
            say(line)
        say(f"report: {campaign.folder / 'report' / 'index.html'}")
    if as_json:
        options.print_json(document)
    elif outcome.speaks:
        for note in judge.fleet.notes() if judge.fleet else ():
            print(one_line(note))
        for verdict in judge.verdicts:
            print(colour_verdicts(one_line(verdict.line())))


def _status(
    outcome: HostRun, judge: JobJudge, own: HostVerdict, campaign: Campaign, *, strict: bool, drains: bool
) -> int:
    """Print the last lines of a job that judged, and return its exit status. *drains*: drain a failed host."""
    status = judge.exit_status(outcome.stands_for, strict=strict)
    if drains:
        status = max(status, _drain([own], campaign, judge.fleet))
    if outcome.speaks:
        _conclude(judge.verdicts, strict=strict)
        say(f"firsttouch: {cost_text(judge.verdicts, outcome.seconds, outcome.limit)}")
    return status


def _conclude(verdicts: Sequence[HostVerdict], *, strict: bool) -> None:
    """Print as the last line what the exit status 0 does not show, if anything."""
    if note := undecided_note([verdict.verdict for verdict in verdicts], strict=strict):
        sys.stdout.flush()
        say(f"firsttouch: {note}")


def _drain(verdicts: Sequence[HostVerdict], campaign: Campaign, fleet: Findings | None) -> int:
    """Drain the hosts that failed, unless most of the *fleet* share a loss; return the exit status."""
    worst = 0
    stop = fleet.common_loss.text if fleet and fleet.common_loss else ""
    reservation = options.SHARED["--reservation"]["default"]
    for line, status in exclusion.drain_hosts(
        verdicts, campaign.name, dry_run=False, reservation=reservation, stop=stop
    ):
        say(f"firsttouch: error: {line}" if status else line)
        worst = max(worst, status)
    return worst


def show_commands(campaign: Campaign, patterns: Sequence[str], *, as_json: bool) -> None:
    """Print the commands of the missing steps that match *patterns*."""
    shown = run.missing_steps(campaign, patterns)
    if as_json:
        rows = [{"name": step.name, "argv": ["firsttouch", *step.argv]} for step in shown]
        options.print_json({"campaign": str(campaign.folder), "steps": rows})
        return
    for step in shown:
        print(shlex.join(["firsttouch", *step.argv]))


def submit_hosts(args: argparse.Namespace) -> int:
    """Submit a job per host and one that collects, and print their numbers."""
    require_report()
    run.check_host_name()
    request = _request(args)
    slurm.require(instead=f"`firsttouch campaign run {args.kind}` measures this host")
    hosts = _hosts(args.hosts)
    options_of_sbatch = submit.split_options(args.sbatch)
    slurm.require_answer()
    if request.campaign is None:
        unique = f"{datetime.now().astimezone():%Y-%m-%dT%H-%M-%S}-{os.getpid()}"
        request = replace(request, campaign=f"{args.kind}-{unique}")
    campaign = request.prepare(dry_run=args.dry_run)
    if strangers := load(campaign.system).strangers(hosts):
        say(f"firsttouch: {strangers}")
    again = submit.Again(args.resubmit, request.steps, options_of_sbatch, drains=args.drain)
    if args.dry_run:
        away = {} if args.wait else submit.unavailable(campaign, hosts, options_of_sbatch)
        for line in _by_reason(away):
            say(f"firsttouch: no job for {line}")
        commands = again.commands(campaign, [h for h in hosts if h not in away])
        if args.json:
            options.print_json({"campaign": str(campaign.folder), "commands": commands})
        else:
            print("\n".join(map(shlex.join, commands)))
        return 0
    submitted = again.submit(campaign, hosts, wait=args.wait)
    jobs, refused = submitted.jobs, _by_reason(submitted.refused)
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


def _by_reason(refused: Mapping[str, str]) -> list[str]:
    """Return a line for each reason, with the hosts that it refuses."""
    hosts = by_key(refused, refused.__getitem__)
    return [f"{fold(names) if len(names) > 1 else names[0]}: {why}" for why, names in hosts.items()]


def _hosts(given: str) -> list[str]:
    """Return the hosts of --hosts, each once; raises BadInput for anything else."""
    try:
        hosts = unfold(given)
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
        if not rows and status == 0:
            print("no campaign: `firsttouch campaign submit` or `firsttouch campaign run` starts one")
            return 0
        shown = [[*{**row, "hosts": len(row["hosts"])}.values()] for row in rows]
        print(tabular(shown, ("campaign", "kind", "system", "created", "hosts")))
    return status


def show_status(args: argparse.Namespace) -> int:
    """Print the finished, waiting and missing steps, without writing a report; 1 if any are missing."""
    campaign = campaigns.find_campaign(args.campaign)
    campaign_state = state(campaign)
    jobs = slurm.active_jobs(journal.jobs(campaign.folder))
    if args.json:
        options.print_json({**campaign_state.to_dict(), "jobs": jobs})
    else:
        print(overview(campaign_state))
        if jobs is None:
            print("\nSlurm's queue (squeue) does not answer, so pending and running jobs are unknown.")
        elif jobs:
            counts = Counter(word.lower() for word in jobs.values())
            print(f"\njobs: {', '.join(f'{count} {word}' for word, count in counts.items())}")
    return 0 if campaign_state.whole else 1


def cancel_jobs(args: argparse.Namespace) -> int:
    """Cancel the measuring jobs. The collecting job then starts, and reports the missing results."""
    campaign = campaigns.find_campaign(args.campaign)
    jobs = slurm.active_jobs(journal.jobs(campaign.folder))
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
    """Report the results; return 0 if they are complete and good, 1 if not, or the verdicts' status."""
    require_report()
    from firsttouch.report import writing  # noqa: PLC0415 - loads templates and figures

    folder = campaigns.folder_of(args.campaign)
    number = re.search(r"-(\d+)\Z", folder.name)
    if number and not folder.exists() and (tries := slurm.job_tries([number[1]])):
        raise BadInput(f"no campaign: {tries[-1].text} and wrote nothing: its output shows why", file=folder)
    campaign = campaigns.find_campaign(args.campaign)
    collected = writing.collect(campaign)
    if args.json:
        options.print_json({**collected.state.to_dict(), "verdicts": [v.to_dict() for v in collected.verdicts]})
    else:
        print(colour_verdicts(collected.text))
        print(f"\nreport: {campaign.folder / 'report'}")
    if campaign.judged:
        if args.resubmit:
            options_of_sbatch = submit.split_options(args.sbatch)
            again = submit.Again(args.resubmit, args.step or (), options_of_sbatch, drains=args.drain)
            undecided = writing.undecided_hosts(collected, args.resubmit)
            again.submit_undecided(campaign, undecided, say)
        status = verdict_status((v.verdict for v in collected.verdicts), strict=args.strict)
        if args.drain:
            status = max(status, _drain(collected.verdicts, campaign, collected.judged))
        _conclude(collected.verdicts, strict=args.strict)
        return status
    return 0 if collected.state.whole and not collected.state.found else 1
