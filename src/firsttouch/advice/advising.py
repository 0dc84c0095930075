# SPDX-License-Identifier: Apache-2.0
"""Advice on this host: tries the scenarios of its plan, keeps the results, and writes them as a JSON document.

Public: :func:`advise_program` (any program), :func:`advise_aligner` (an aligner's index and reads) and
:func:`advise_command` (a user's command of an aligner). They hold the host while they measure.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from firsttouch.advice import advice_text, auto, saved
from firsttouch.advice.aligner_inputs import Inputs
from firsttouch.advice.comparison import ProgramComparison, compare
from firsttouch.advice.costs import candidates, default, index_banks, interval, latency_ratio
from firsttouch.advice.posterior import Prior, prior
from firsttouch.advice.trials import advise
from firsttouch.benchmarks import kernel_settings
from firsttouch.errors import BadInput
from firsttouch.execution import host_lock
from firsttouch.genomics import launch
from firsttouch.genomics.command_line import UserCommand
from firsttouch.host.topology import load
from firsttouch.records.schema import BUSY
from firsttouch.scenarios.memory_fit import Need
from firsttouch.scenarios.memory_options import combinations, select_for_aligner, select_options
from firsttouch.scenarios.placement import Plan, distinct, plan, with_threads

Say = Callable[[str], None]
Document = dict[str, Any]


class Choices(Struct, frozen=True):
    """The choices to try: *policies* and memory *options* (lists of names), and *threads* (None: all usable PUs).

    With *share_host*, it does not wait for other runs on this host.
    """

    policies: str = "usual"
    options: str = "all"
    threads: int | None = None
    share_host: bool = False

    def planned(self, need: Need | None = None) -> Plan:
        """Return this host's plan for instances of that memory *need*."""
        return plan(load(), need, threads=self.threads, policies=self.policies)


@contextlib.contextmanager
def _holding_host(choices: Choices, say: Say) -> Iterator[None]:
    """Hold the host during the trials, and warn at the end if other programs used it meanwhile."""
    with host_lock.hold_unless_shared(say, share_host=choices.share_host), host_lock.no_process_left():
        since = kernel_settings.usage()
        yield
        busy = kernel_settings.busy_pus(since)
    if busy.value >= BUSY:
        programs = f" ({busy.parameters['programs']})" if busy.parameters else ""
        say(
            f"warning: this host was not idle: other programs used {busy.value:.1f} PUs{programs}, "
            "which may have changed the advice: repeat it when they have ended"
        )


def _offered(
    choices: Choices, need: Need | None, index_bytes: int, sets: Sequence[Sequence[str]], undivided: str = ""
) -> tuple[Plan, Prior, int]:
    """Return this host's plan, the prior of its scenarios, and the number of the default scenario.

    Scenarios also get each of *sets* of memory options. *undivided* is the reason why only scenarios of one
    instance are possible, or empty.
    """
    host, planned = load(), choices.planned(need).with_each(sets)
    if undivided:
        several = tuple((s.name, undivided) for s in planned.scenarios if s.instances > 1 and not s.options)
        alone = (s for s in planned.scenarios if s.instances == 1)
        planned = planned.with_listing(alone, (*planned.infeasible, *several))
    usual = default(planned.scenarios)
    banks = index_banks(host, index_bytes)
    return planned, prior(candidates(planned.scenarios), banks, latency_ratio(host)), usual


def advise_aligner(
    asked: Inputs,
    choices: Choices,
    budget: float,
    *,
    say: Say,
) -> Document:
    """Try scenarios on samples of the reads, which cost at most the part *budget* of the whole run; see advise.

    Raises BadInput, Missing or RunFailed.
    """
    aligner = asked.aligner
    size = aligner.index_bytes(asked.index)
    sets, refused = combinations(select_for_aligner(choices.options), aligner.program)
    need = aligner.need(size, asked.batch_bases)
    planned, expected, usual = _offered(choices, need, size, sets, aligner.whole)
    work = launch.prepare(
        aligner, asked.index, asked.files, asked.batch_bases, interleaved=asked.interleaved, say=say
    )
    with _holding_host(choices, say):
        advice = advise(work, planned.scenarios, expected, budget, default=usual, say=say)
        document = advice_text.document(advice, usual, planned.infeasible, refused)
        for line in advice_text.lines(document):
            say(line)
        document = {**advice_text.header(), "aligner": aligner.label, "dataset": asked.dataset, **document}
        if advice.belief is not None and advice.compared:
            total = max(s.instances * s.threads for s in planned.scenarios)
            key = saved.aligner_key(load(), aligner, asked.index, threads=total, mates=work.reads.mates)
            gain = document["gain"] if document["clear"] else None
            saved.save(key, document["recommended"], gain, document, say)
    return document


def advise_command(command: UserCommand, choices: Choices, budget: float, *, say: Say) -> Document:
    """Try scenarios on the first reads of a user's *command*, which ``firsttouch run -- COMMAND`` then follows."""
    if command.index is None:
        raise BadInput(f"the command names no index: {command.as_typed()}")
    host = load()
    need = command.aligner.need(command.aligner.index_bytes(command.index))
    threads = min(choices.threads or command.threads, host.usable_pu_count)
    planned = replace(choices, threads=threads).planned(need)
    choosing = auto.Auto(command, host, planned, budget, options=choices.options, say=say)
    with _holding_host(choices, say):
        document = choosing.advise(say, strict=False)
    for line in advice_text.lines(document):
        say(line)
    return document


def advise_program(
    program: Sequence[str],
    choices: Choices,
    *,
    say: Say = print,
    rounds: int = 3,
    timeout: float | None = None,
) -> Document:
    """Run the whole *program* in *rounds* rounds under each promising scenario of one instance; see compare.

    *timeout* is the most seconds of a run.
    """
    sets, refused = combinations(select_options(choices.options), program[0])
    planned, expected, _ = _offered(choices, None, 0, sets)
    threads = max(s.threads for s in planned.scenarios if s.instances == 1)
    numbers = [i for i, s in enumerate(planned.scenarios) if s.instances == 1 and s.threads == threads]
    scenarios = distinct([planned.scenarios[i] for i in numbers])
    numbers = [i for i in numbers if planned.scenarios[i] in scenarios]
    usual = default(scenarios)
    part = Prior(expected.mean[numbers], expected.covariance[numbers][:, numbers])
    words = with_threads(program, threads)
    with _holding_host(choices, say):
        began = time.monotonic()
        result = compare(words, scenarios, part, usual=usual, rounds=rounds, timeout=timeout, say=say)
        spent = time.monotonic() - began
    rows = [_row(result, i, usual) for i in range(len(scenarios))]
    best = result.best
    document = {
        "program": program,
        "scenario": scenarios[best].name,
        "recommended": scenarios[best].policy,
        "clear": result.clear,
        "interval": 0.9,
        "runs": result.runs,
        "spent_s": spent,
        "policies": [row for row in rows if not row["memory_options"]],
        "scenarios": [row for row in rows if row["memory_options"] and (row["samples"] or row["reason"])],
        "memory_options": advice_text.option_rows(
            result.belief,
            [s.options for s in scenarios],
            [len(own) for own in result.costs],
            {**result.needless, **result.dropped},
            refused,
        ),
        "infeasible": [{"name": n, "reason": r} for n, r in planned.infeasible if n.startswith("1x")],
    }
    if result.compared:
        key = saved.program_key(load(), program, threads)
        saved.save(key, scenarios[best].name, rows[best]["gain"] if best != usual else None, document, say)
    else:
        say(f"{program[0]}: only {scenarios[best].name} was tried, so nothing was compared: no advice is saved")
    return document


def _row(result: ProgramComparison, number: int, usual: int) -> Document:
    """Return the JSON object of a scenario of a program."""
    own = result.costs[number]
    scenario, memory = result.scenarios[number], result.memory.get(number)
    return {
        "name": scenario.name,
        "policy": scenario.policy,
        "memory_options": list(scenario.options),
        "numactl": list(scenario.placements[0].numactl),
        "samples": list(own),
        "seconds": statistics.median(own) if own else None,
        "gain": interval(*result.belief.ratio(usual, number)) if own and result.costs[usual] else None,
        "memory": memory and memory.to_dict(),
        "status": "invalid" if number in result.dropped else "valid" if own else "not tried",
        "reason": result.dropped.get(number, ""),
    }
