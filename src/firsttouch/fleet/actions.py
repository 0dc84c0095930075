# SPDX-License-Identifier: Apache-2.0
"""The journal of actions on hosts, ``fleet/actions.jsonl`` in the folder for results: action, time and reason.

An action on Slurm has two lines with one *id*: the intent, written to disk before Slurm is called, and the end. If
the process is killed in between, the next pass asks Slurm for the state. The acting process and the Slurm commands
that it starts hold the lock of the journal, so if it is killed, the next pass waits for these commands.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, convert, field
from msgspec.structs import asdict, replace

from firsttouch import paths
from firsttouch.clock import MOST_SKEW, SYSTEM_CLOCK, Clock
from firsttouch.errors import BadInput, RunFailed
from firsttouch.execution.host_lock import user_name
from firsttouch.execution.progress import say
from firsttouch.host.emulation import HOST
from firsttouch.records import file_lock
from firsttouch.records.append_log import AppendLog

#: hold, test, drain, release and resume change Slurm. The others state observations: the result of a test, a host
#: that somebody else released or resumed, and a host without a decision (stuck).
What = Literal[
    "hold",
    "test",
    "drain",
    "release",
    "resume",
    "result",
    "returned",
    "stuck",
]
#: "undone": the process ended before Slurm executed it.
State = Literal["intent", "done", "failed", "undone"]


class Busy(RunFailed):
    """Another process acts on hosts (exit 1)."""


class Action(Struct, frozen=True, forbid_unknown_fields=True):
    """A line of the journal: the action *what* on a *host* is in *state* since *time* (seconds since 1970).

    *by* is the user and the process, *hand* is true for requests of a person. *reason* and *source*, which is a
    campaign, are the evidence. *job* is the job of a test, *verdict* its result, *measured* the time of its
    measurement. *drained* is the host's drain reason before a hold, or the reason of a drain that ends it.
    """

    id: str
    what: What
    state: State
    host: Annotated[str, Meta(pattern=rf"\A(?:{HOST.pattern})\Z")]
    time: float
    by: str = ""
    hand: bool = False
    reason: str = ""
    system: str = ""
    source: str = ""
    job: str = ""
    verdict: str = ""
    measured: float = 0.0
    drained: str = ""


class Test(Struct):
    """A test of a held host: its campaign, the *job*, and the *verdict* ("" without one) once it has *ended*."""

    id: str
    campaign: str
    job: str
    ended: bool = False
    verdict: str = ""
    reason: str = ""


class QuarantineState(Struct):
    """The state of a host by the journal.

    *hold* is the intent of the present hold (None: not held) and *tests* are those in it. *drained* is the line of
    our drain, until somebody resumes the host. *unfinished* has the intents without an end, by their action.
    *ended* is when the host last returned, which settles earlier verdicts; a release of a drained host does not.
    *failed* is when a hold was refused (both in seconds since 1970).
    *drained_in_hold* is whether our drain came after the present hold, *system* the system of the last hold.
    """

    host: str
    hold: Action | None = None
    tests: list[Test] = field(default_factory=list)
    drained: Action | None = None
    unfinished: dict[str, Action] = field(default_factory=dict)
    ended: float = 0.0
    failed: float = 0.0
    is_stuck: bool = False
    drained_in_hold: bool = False
    system: str = ""

    @property
    def passes(self) -> int:
        """Return how many of the last tests of this hold passed in a row."""
        words = [test.verdict for test in self.tests if test.ended]
        return next((i for i, word in enumerate(reversed(words)) if word != "pass"), len(words))

    @property
    def is_out(self) -> bool:
        """Return whether the rules, not a person, hold or drained this host, or began to hold it."""
        taken = (self.hold, self.drained, self.unfinished.get("hold"))
        return any(action is not None and not action.hand for action in taken)

    def add(self, action: Action, now: float) -> None:
        """Take the next line of the journal into account; times after *now* are ignored."""
        if action.state == "intent":
            self.unfinished[action.what] = action
            return
        intent = self.unfinished.pop(action.what, action)
        if action.state == "failed" and action.what == "hold":
            self.failed = _believed(action.time, now)
        if action.state == "done":
            self._done(action, intent, now)

    def _done(self, action: Action, intent: Action, now: float) -> None:
        match action.what:
            case "hold":
                self.hold, self.tests, self.is_stuck = intent, [], False
                self.drained_in_hold, self.system = False, intent.system
            case "test":
                self.tests.append(Test(intent.id, intent.source, action.job))
            case "result":
                for test in self.tests:
                    if test.id == action.id:
                        test.ended, test.verdict, test.reason = True, action.verdict, action.reason
            case "drain":
                self.drained, self.drained_in_hold = action, self.hold is not None
            case "release" | "returned":
                self.hold = None
                if action.what == "returned":
                    self.drained = None
                if not (self.drained or action.drained):
                    self.ended = _believed(action.time, now)
            case "resume":
                self.drained = None
            case "stuck":
                self.is_stuck = True


def _believed(moment: float, now: float) -> float:
    """Return a time of the journal; 0 if it is in the future (the writer's clock was wrong)."""
    return moment if moment <= now + MOST_SKEW else 0.0


def folder() -> Path:
    """Return the folder of the journal."""
    return paths.results() / "fleet"


class Actions:
    """The journal in *folder*: :attr:`lines`, oldest first, and a :class:`QuarantineState` per host.

    Raises BadInput for a line that is not an action, because its effect is unknown. Times in the future are
    ignored.
    """

    def __init__(self, of: Path | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self.file = (of or folder()) / "actions.jsonl"
        self.clock = clock
        self.lines: list[Action] = []
        self.lives: dict[str, QuarantineState] = {}
        self._log = AppendLog(
            self.file,
            partial(convert, type=Action),
            lambda error: f"not a line of the journal of actions ({error}): repair or remove it",
        )
        for action in self._log.values():
            self._take(action)

    def _take(self, action: Action) -> None:
        self.lines.append(action)
        self.life(action.host).add(action, self.clock.time())

    def life(self, host: str) -> QuarantineState:
        """Return the state of a host; a new one for a host without a line."""
        return self.lives.setdefault(host, QuarantineState(host))

    def write(self, action: Action) -> Action:
        """Append a line and sync it to disk."""
        self._log.append(asdict(action))
        self._take(action)
        return action

    def begin(self, what: What, host: str, **more: Any) -> Action:
        """Write the intent of an action."""
        return self.write(Action(secrets.token_hex(4), what, "intent", host, self.clock.time(), _by(), **more))

    def end(self, intent: Action, state: State = "done", **changes: Any) -> Action:
        """Write the end of an action."""
        return self.write(replace(intent, state=state, time=self.clock.time(), by=_by(), **changes))

    def note(self, what: What, host: str, **more: Any) -> Action:
        """Write a line about an observation."""
        more = {"id": secrets.token_hex(4), **more}
        return self.write(Action(what=what, state="done", host=host, time=self.clock.time(), by=_by(), **more))


def _by() -> str:
    return f"{user_name(os.geteuid())}@{os.uname().nodename}:{os.getpid()}"


@contextlib.contextmanager
def hold_lock(*, wait: bool, clock: Clock = SYSTEM_CLOCK) -> Iterator[tuple[Actions, int]]:
    """Hold the lock of the journal; yield the journal and the lock's descriptor, which Slurm's commands inherit.

    Raises Busy if another process holds the lock and not *wait*, BadInput if the folder cannot be written or
    locked.
    """
    place = folder()
    try:
        place.mkdir(parents=True, exist_ok=True)
        # NFS grants an exclusive lock only on a file that is open for writing.
        handle = os.open(place / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise BadInput(f"cannot be written: {error.strerror}", file=place) from error
    try:
        _lock(handle, place, wait=wait)
        yield Actions(place, clock), handle
    finally:
        os.close(handle)


def _lock(handle: int, place: Path, *, wait: bool) -> None:
    try:
        if file_lock.try_lock(handle):
            return
        if not wait:
            raise Busy("another process acts on hosts: nothing is done")
        say("firsttouch: waiting for another process that acts on hosts")
        file_lock.lock(handle)
    except OSError as error:
        reason = f"cannot be locked ({error.strerror}): FIRSTTOUCH_OUT must be on a file system with locks"
        raise BadInput(reason, file=place) from error
