# SPDX-License-Identifier: Apache-2.0
"""Which hosts the jobs of users should avoid, as a published list.

In: the log of verdicts, the journal of actions, and the site's settings. Out: one JSON file that every user may
read.

Hosts whose campaign lost alike, and hosts that the present references do not blame, are not listed, as no pass
would hold them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import asdict

from firsttouch import documents
from firsttouch.errors import BadInput
from firsttouch.fleet import actions, blamed
from firsttouch.fleet.actions import Actions
from firsttouch.fleet.site_settings import SiteSettings, Why
from firsttouch.host.emulation import HOST, name_among
from firsttouch.host.host_lists import folded
from firsttouch.judge import verdict_log
from firsttouch.judge.verdict import natural
from firsttouch.judge.verdict_log import Logged
from firsttouch.records import atomic_files

#: Those of the rules, which have limits.
_RULED = frozenset({"fail", "suspect"})
#: The kind of the published document, and its form.
DOCUMENT, SCHEMA = "firsttouch-exclude", 1
#: Seconds in which changes are counted.
_HOUR = 3600.0
#: Verdicts that decide nothing: the verdict before them stands.
_OPEN = frozenset({"undecided", "invalid"})


class Excluded(Struct, frozen=True):
    """A *host* that jobs should avoid, *why* and since when (seconds since 1970), and the evidence."""

    host: Annotated[str, Meta(pattern=rf"\A(?:{HOST.pattern})\Z")]
    why: Why
    since: float
    system: str
    reason: str
    source: str


class Exclusions(Struct, frozen=True):
    """The hosts that jobs should avoid, as of the time *written* (seconds since 1970)."""

    written: float
    hosts: tuple[Excluded, ...]

    @property
    def hostlist(self) -> str:
        """The hosts as Slurm writes them: ``n[3,7]``; "" for none."""
        return folded([excluded.host for excluded in self.hosts]) if self.hosts else ""

    def of(self, system: str = "", why: Collection[Why] = ()) -> Exclusions:
        """Return the hosts of a *system* ("": all), listed for one of the reasons *why* (none: for any)."""
        hosts = (e for e in self.hosts if system in {"", e.system} and (not why or e.why in why))
        return Exclusions(self.written, tuple(hosts))

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        hosts = [asdict(excluded) for excluded in self.hosts]
        return {"document": DOCUMENT, "schema": SCHEMA, "hostlist": self.hostlist, **asdict(self), "hosts": hosts}


# ----------------------------------------------------------------------
# The list


def exclusions(journal: Actions, settings: SiteSettings, named: Iterable[str] = ()) -> Exclusions:
    """Return the hosts to avoid by the log of verdicts and the *journal*; *named* are Slurm's names of hosts."""
    now, names, seen = journal.clock.time(), set(named), blamed.Campaigns()
    avoided: dict[str, Excluded] = {}
    for life in journal.lives.values():
        if action := life.hold or life.drained:
            why: Why = "held" if life.hold else "drained"
            evidence = (action.time, action.system or life.system, action.reason, action.source)
            avoided[life.host] = Excluded(life.host, why, *evidence)
    for logged in _last(verdict_log.read(clock=journal.clock)).values():
        host = name_among(logged.host, names)
        if host in avoided or logged.time < now - settings.exclude.max_age:
            continue
        if logged.verdict in settings.exclude.verdicts and not blamed.is_settled(journal, host, logged):
            word = seen.word(logged)
            if word in settings.exclude.verdicts and not seen.stop(logged.source):
                why = "fail" if word == "fail" else "suspect"
                avoided[host] = Excluded(host, why, logged.time, logged.system, logged.reason, logged.source)
    return Exclusions(round(now, 3), tuple(avoided[host] for host in sorted(avoided, key=natural)))


def _last(logs: Mapping[str, Sequence[Logged]]) -> dict[str, Logged]:
    """Return the last verdict of each host that decides something."""
    decided = {host: [line for line in log if line.verdict not in _OPEN] for host, log in logs.items()}
    return {host: log[-1] for host, log in decided.items() if log}


def place(settings: SiteSettings) -> Path:
    """Return the published file."""
    return Path(settings.exclude.file) if settings.exclude.file else actions.folder() / "exclude.json"


def publish(avoided: Exclusions, file: Path) -> None:
    """Write the list to *file*, which every user may read; raises BadInput if it cannot be written."""
    try:
        # Everybody reads the list, whatever the umask of its publisher is.
        for folder in reversed([folder for folder in file.parents if not folder.exists()]):
            folder.mkdir(exist_ok=True)
            atomic_files.set_mode(folder, 0o755)
        with atomic_files.replacing(file) as partial:
            partial.write_text(json.dumps(avoided.to_dict(), indent=1) + "\n", encoding="utf-8")
            atomic_files.set_mode(partial, 0o644)
    except OSError as error:
        raise BadInput(f"the list of hosts to avoid cannot be written: {error.strerror}", file=file) from error


def read(file: Path) -> Exclusions:
    """Return the published list; raises BadInput, with the file, for anything else."""
    again = "`firsttouch fleet exclude --publish` writes it"
    what = "a list of hosts to avoid"
    data = documents.read_json(file, what, document=DOCUMENT, schema=SCHEMA, form=Exclusions, again=again)
    return msgspec.convert(data, Exclusions)
