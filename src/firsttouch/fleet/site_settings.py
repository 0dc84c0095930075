# SPDX-License-Identifier: Apache-2.0
"""The site's settings for the life of its fleet, from fleet.yaml.

:func:`load` merges the site's file and the user's, key by key, over the defaults of the structures below, whose
fields are the keys of the file. A wrong file is an error and not ignored, because it decides about hosts.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Struct, field

from firsttouch import documents, paths

NAME = "fleet.yaml"
#: What a notice may be about.
Event = Literal["fail", "hold", "release", "drain"]
#: Why a host is on the list of those to avoid: its last verdict, or what was done about it.
Why = Literal["fail", "suspect", "held", "drained"]
EVENTS: tuple[Event, ...] = ("fail", "hold", "release", "drain")
#: Seconds, and a fraction; both are text in the file.
Duration = Annotated[float, {"type": "string", "quantity": "seconds", "description": 'a time such as "24h"'}]
Share = Annotated[float, {"type": "string", "percent": "positive", "description": 'a share such as "5 %"'}]
Count = Annotated[int, {"minimum": 1, "description": "a whole number of at least 1"}]
#: Text that is one word in a command of Slurm, and no option.
Word = Annotated[str, {"pattern": r"\A[A-Za-z0-9_][A-Za-z0-9_.@+-]*\Z", "description": "one word"}]
Command = Annotated[tuple[str, ...], {"minItems": 1, "description": "a list of arguments, the program first"}]
Patterns = Annotated[tuple[str, ...], {"description": "a list of patterns of step names"}]
Options = Annotated[tuple[str, ...], {"description": "a list of options for sbatch"}]
#: The beginning of the name of a reservation.
_PREFIX = "a letter, then letters, digits and '_', 31 at most"
Prefix = Annotated[str, {"pattern": r"\A[A-Za-z][A-Za-z0-9_]{0,30}\Z", "description": _PREFIX}]
#: Verdicts for which a host is held or listed.
Verdicts = Annotated[tuple[Literal["suspect", "fail"], ...], {"description": "a list of verdicts"}]


class Notify(Struct, frozen=True):
    """The site's own command for notices: it gets a line about the events."""

    command: Command = ()
    format: Literal["text", "json"] = "text"
    events: Annotated[tuple[Event, ...], {"description": "a list of events"}] = EVENTS
    timeout: Duration = 10.0


class Hold(Struct, frozen=True):
    """Which hosts are held, and how they are tested again."""

    #: Without it, `fleet tend` only prints what it would do.
    act: bool = False
    #: The verdicts for which a host is held, and their greatest age.
    verdicts: Verdicts = ("fail",)
    max_age: Duration = 7 * 86400.0
    #: The most actions in an hour.
    per_hour: Count = 3
    #: The most hosts of a system that the rules hold or drain, as a share; one host in any case.
    max_out: Share = 0.05
    #: The least time between two holds of a host.
    cool_down: Duration = 86400.0
    #: Tests that a held host passes in a row before it is released, and tests without a decision before it is left
    #: to a person.
    passes: Count = 2
    tries: Count = 6
    reservation: Prefix = "firsttouch"
    #: The tests; without steps, all of them.
    effort: str = "full"
    repetitions: Count = 5
    steps: Patterns = ()
    sbatch: Options = ()

    def most_out(self, hosts: int) -> int:
        """Return how many of a system's *hosts* the rules may take: at least one, however few there are."""
        return max(1, int(self.max_out * hosts + 1e-9))


class Screening(Struct, frozen=True):
    """Which hosts are due for validation, and the Slurm options of their jobs."""

    #: An older verdict is due.
    max_age: Duration = 7 * 86400.0
    qos: Word = ""
    partition: Word = ""
    nice: Annotated[int, {"minimum": 0, "description": "a whole number of at least 0"}] = 10_000
    sbatch: Options = ()


class Exclude(Struct, frozen=True):
    """Which hosts the jobs of users should avoid, where that is published, and the feature of all other hosts."""

    #: The published file; without it, exclude.json beside the journal of actions.
    file: Annotated[str, {"pattern": r"\A/", "description": "an absolute path"}] = ""
    verdicts: Verdicts = ("fail", "suspect")
    #: Older verdicts list no host.
    max_age: Duration = 30 * 86400.0
    #: The feature in Slurm of hosts that passed; without it, features are left alone.
    feature: Word = ""


class SiteSettings(Struct, frozen=True):
    """All settings; *mail* is the user or the address that Slurm mails about the jobs of held hosts."""

    mail: Word = ""
    notify: Notify = field(default_factory=Notify)
    hold: Hold = field(default_factory=Hold)
    screening: Screening = field(default_factory=Screening)
    exclude: Exclude = field(default_factory=Exclude)


SCHEMA = documents.schema_of(SiteSettings)


def load() -> SiteSettings:
    """Return the site's settings; raises BadInput, with the line, for a file that is wrong."""
    merged: dict[str, Any] = {}
    for file in paths.tables_of(NAME):
        if not documents.has_only_comments(text := documents.read_text(file)):
            document = documents.parse_yaml(text, file)
            document.check(SCHEMA)
            for key, value in document.data.items():
                merged[key] = merged.get(key, {}) | value if isinstance(value, dict) else value
    return documents.build(SiteSettings, merged)
