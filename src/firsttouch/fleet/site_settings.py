# SPDX-License-Identifier: Apache-2.0
"""The site's settings for holding, testing and excluding hosts, from fleet.yaml.

:func:`load` merges the site's file and the user's, key by key, over the defaults of the structures below, whose
fields are the keys of the file. An invalid file is an error, because it decides about hosts.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from msgspec import Meta, field
from msgspec.structs import replace

from firsttouch import documents, paths
from firsttouch.documents import Count, FileTable, Percentage, Seconds

NAME = "fleet.yaml"
#: Reasons for listing a host to avoid: its last verdict, or the last action on it.
Why = Literal["fail", "suspect", "held", "drained"]
#: Text that is one word in a command of Slurm, and not an option.
SlurmWord = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_][A-Za-z0-9_.@+-]*\Z", description="one word")]
#: The beginning of the name of a reservation.
_PREFIX = "a letter, then letters, digits and '_', 31 at most"
Prefix = Annotated[str, Meta(pattern=r"\A[A-Za-z][A-Za-z0-9_]{0,30}\Z", description=_PREFIX)]
#: Verdicts for which a host is held or listed.
Verdicts = tuple[Literal["suspect", "fail"], ...]


class Hold(FileTable, frozen=True):
    """Which hosts are held, and how they are tested again."""

    #: Without it, `fleet tend` only prints its intended actions.
    act: bool = False
    #: The verdicts for which a host is held, and their maximum age.
    verdicts: Verdicts = ("fail",)
    max_age: Seconds = Seconds(7 * 86400.0)
    #: The largest share of a system's hosts that the rules may hold or drain; at least one host.
    max_out: Percentage = Percentage(0.05)
    #: The least time between two holds of a host.
    cool_down: Seconds = Seconds(86400.0)
    #: The number of tests that a held host must pass in a row to be released, and of tests without a decision
    #: after which a person must decide.
    passes: Count = 2
    tries: Count = 6
    reservation: Prefix = "firsttouch"
    #: The tests; without steps, all of them.
    effort: str = "full"
    repetitions: Count = 5
    steps: tuple[str, ...] = ()
    sbatch: tuple[str, ...] = ()

    def most_out(self, hosts: int) -> int:
        """Return how many of a system's *hosts* the rules may hold or drain: at least one."""
        return max(1, int(self.max_out * hosts + 1e-9))


class Exclude(FileTable, frozen=True):
    """Which hosts the jobs of users should avoid."""

    verdicts: Verdicts = ("fail", "suspect")
    #: Older verdicts are ignored.
    max_age: Seconds = Seconds(30 * 86400.0)


class SiteSettings(FileTable, frozen=True):
    """All settings; *mail* is the user or the address that Slurm mails about the jobs of held hosts."""

    mail: SlurmWord = ""
    hold: Hold = field(default_factory=Hold)
    exclude: Exclude = field(default_factory=Exclude)


def load() -> SiteSettings:
    """Return the site's settings; raises BadInput, with the line, for an invalid file."""
    merged: dict[str, Any] = {}
    settings = SiteSettings()
    for file in paths.tables_of(NAME):
        if re.search(r"^\s*[^#\s]", text := documents.read_text(file), re.MULTILINE):  # more than comments
            document = documents.parse_yaml(text, file)
            document.convert(SiteSettings)
            for key, value in document.data.items():
                merged[key] = merged.get(key, {}) | value if isinstance(value, dict) else value
            settings = replace(document, data=merged).convert(SiteSettings)
    return settings
