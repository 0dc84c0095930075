# SPDX-License-Identifier: Apache-2.0
"""Notices: one line about a fail, a hold, a release or a drain, to the command that the site names.

Each event has one notice. A command that fails or hangs is stopped and noted in the journal, and prevents nothing.
A process that is killed between an action and its notice leaves the notice to the next pass.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator

from firsttouch.clock import Clock
from firsttouch.errors import FirstTouchError, one_line
from firsttouch.execution.child_process import child, ending, wait
from firsttouch.fleet.actions import Action, Actions, events
from firsttouch.fleet.site_settings import Notify
from firsttouch.judge.verdict_file import shell_safe

#: Seconds after which an event is no news, such as one from before the site had a command.
_NEWS = 86400.0
_VERBS = {"fail": "fails", "hold": "is held", "release": "is released", "drain": "is drained"}


def line(event: str, action: Action, form: str) -> str:
    """Return the notice of an *event* as one line in *form*, text or json."""
    reason = shell_safe(action.reason)
    if form == "json":
        document = {"event": event, "host": action.host, "time": round(action.time, 3), "reason": reason}
        return json.dumps({**document, "source": shell_safe(action.source), "by": action.by, "id": action.id})
    source = f" ({shell_safe(action.source)})" if action.source else ""
    return one_line(f"firsttouch: {action.host} {_VERBS[event]}: {reason}{source}")


def send(journal: Actions, settings: Notify) -> Iterator[str]:
    """Send the notices of the events that have none; yield a line for each that could not be sent."""
    if not settings.command:
        return
    for event, action in events(journal.lines, journal.clock.time() - _NEWS):
        if event not in settings.events:
            continue
        problem = _send(line(event, action, settings.format), settings, journal.clock)
        journal.note("notice", action.host, id=action.id, source=event, reason=problem or "sent")
        if problem:
            yield f"{action.host}: the notice of its {event} was not sent: {problem}"


def _send(text: str, settings: Notify, clock: Clock) -> str:
    """Give a line to the site's command; return why it failed, "" if it did not."""
    with tempfile.TemporaryFile() as stdin:
        stdin.write(text.encode() + b"\n")
        stdin.seek(0)
        try:
            with child([*settings.command, text], stdin=stdin) as process:
                status = wait(process, settings.timeout, clock=clock)
        except FirstTouchError as error:
            return str(error)
    if status is None:
        return f"{settings.command[0]} did not end within {settings.timeout:g} s"
    return "" if status == 0 else ending(settings.command[0], status)
