# SPDX-License-Identifier: Apache-2.0
"""The memory policies of policies.json and of a site's policies.toml; adding one needs an entry and no code."""

from __future__ import annotations

import functools
import operator
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, get_args

from msgspec import Meta, field

from firsttouch import documents
from firsttouch.documents import FileTable
from firsttouch.errors import BadInput, FirstTouchError, none_such
from firsttouch.host import pages
from firsttouch.tools import run_tool

Extent = Literal["whole", "part"]
Pages = Literal["anywhere", "inside", "even", "weighted"]
GROUPS = ("thesis", "usual", "all")
#: The names become parts of scenario names.
_NAME = r"^[a-z]+(-[a-z]+)*\Z"
_PolicyWord = Annotated[str, Meta(pattern=_NAME)]


class Policy(FileTable, frozen=True, eq=False):
    """One policy: numactl's options and the mode that the kernel must show, for one instance and for several.

    The fields are the keys of the files (docs/reference/data-files.md).
    """

    name: str
    title: str
    whole: tuple[str, ...]
    part: tuple[str, ...]
    mode: Mapping[Extent, str]
    pages: Mapping[Extent, Pages]
    tolerance: Annotated[float, Meta(ge=0, lt=1)]
    word: Mapping[Extent, _PolicyWord] = field(default_factory=dict)
    since: str = ""  # empty for the thesis's policies
    setting: Annotated[tuple[str, ...], Meta(min_length=2, max_length=2, description="a file and its value")] = ()
    unlisted: bool = False
    tiers: Literal["", "fast", "own"] = ""
    caches: bool = False
    note: str = ""  # for readers of the file

    def __post_init__(self) -> None:
        """Raise ValueError for a table without one of the extents."""
        for key in ("mode", "pages", *(["word"] if self.word else [])):
            if len(getattr(self, key)) < len(get_args(Extent)):
                raise ValueError(f"{key} needs {' and '.join(get_args(Extent))}")

    @property
    def binds(self) -> bool:
        """Whether each of several instances is bound to different PUs."""
        return any("{bind}" in option for option in self.part)

    def numactl(self, extent: Extent, *, bind: str, numa_nodes: str) -> tuple[str, ...]:
        """Return numactl's options with their placeholders replaced."""
        template = self.whole if extent == "whole" else self.part
        return tuple(t.format(bind=bind, numa_nodes=numa_nodes) for t in template)

    def holds(self, mode: str, extent: Extent) -> bool:
        """Return whether *mode*, from :func:`pages.mode`, has the name and the flag of this policy."""
        wanted, _, flag = self.mode[extent].partition("=")
        name, _, flags = mode.partition(":")[0].partition("=")
        # The flags "static" and "relative" only say how NUMA nodes are counted in a cpuset.
        return name == wanted and ("balancing" in flags.split("|")) == (flag == "balancing")


def parse(text: str, file: str) -> dict[str, Policy]:
    """Return the policies of a text in TOML or JSON; raises BadInput naming *file*, the line and the entry."""
    document = documents.parse_table(text, file)
    policies = document.entries(Policy, _NAME)
    for name, policy in policies.items():
        try:
            for extent in get_args(Extent):
                policy.numactl(extent, bind="", numa_nodes="")
        except (KeyError, IndexError, ValueError) as error:
            raise document.error(f"policy {name}: unknown placeholder: {error}", name) from error
    return policies


@functools.cache
def policies() -> dict[str, Policy]:
    """Return all policies by name, in the order of policies.json; a site's file adds to them or replaces some."""
    return functools.reduce(operator.or_, documents.tables("policies.toml", parse))


def policy(name: str) -> Policy:
    """Return a policy by name; raises BadInput, which lists the names, for an unknown name."""
    try:
        return policies()[name]
    except KeyError:
        raise BadInput(none_such("policy", name, policies())) from None


def policy_of_word(text: str, extent: Extent) -> Policy | None:
    """Return the policy with that word in names of scenarios, or that name, or None."""
    by_word: dict[str, Policy] = {}
    for policy in policies().values():  # names take precedence, then earlier policies
        by_word.setdefault(policy.word.get(extent, policy.name), policy)
    return policies().get(text) or by_word.get(text)


def word_of(policy: Policy, extent: Extent) -> str:
    """Return the word for *policy* in names of scenarios: its name, if its own word means another policy."""
    word = policy.word.get(extent, policy.name)
    return word if policy_of_word(word, extent) is policy else policy.name


def select_policies(text: str) -> tuple[Policy, ...]:
    """Return the policies in one of GROUPS or in a comma-separated list of names; raises BadInput.

    ``usual`` are the policies of the thesis, of last-level caches and of memory tiers.
    """
    if text in GROUPS:
        listed = [p for p in policies().values() if not p.unlisted]
        thesis = [p for p in listed if not (p.since or p.caches)]
        return tuple(
            p for p in listed if text == "all" or p in thesis or (text == "usual" and (p.tiers or p.caches))
        )
    return tuple(policy(name) for name in dict.fromkeys(text.split(",")))


@functools.cache
def refusal(policy: Policy, numa_nodes: str) -> str:
    """Return why this host does not support a policy on *numa_nodes*, or an empty string.

    The policy is tried, because a numactl or a kernel that does not know it may silently use another one. The
    thesis's policies work everywhere and need no trial.
    """
    if not policy.since:
        return ""
    reason = _unset(policy.setting) or _tried(policy, numa_nodes)
    return f"policy {policy.name} needs {policy.since}: {reason}" if reason else ""


def _unset(setting: tuple[str, ...]) -> str:
    """Return how a kernel file differs from its required value, or an empty string."""
    if not setting:
        return ""
    file, value = setting
    try:
        current = Path(file).read_text(encoding="utf-8").strip()
    except OSError as error:
        return f"{file}: {error.strerror}"
    return "" if current == value else f"{file} is {current}: an administrator must set it to {value}"


def _tried(policy: Policy, numa_nodes: str) -> str:
    """Run a program under a policy and return why numactl or the kernel refuse it, or an empty string."""
    if shutil.which("numactl") is None:
        return "numactl is not on PATH"
    options = [o for o in policy.numactl("part", bind="", numa_nodes=numa_nodes) if o]
    argv = ["numactl", *options, "--", "cat", "/proc/self/numa_maps"]
    try:
        done = run_tool(argv)
    except FirstTouchError as error:
        return f"numactl cannot be tried: {error}"
    if done.returncode:
        message = next((x.strip() for x in done.stderr.splitlines() if x.strip()), f"status {done.returncode}")
        return f"this host refuses it: {message}"
    shown = pages.anonymous_pages(done.stdout).modes
    if any(policy.holds(mode, "part") for mode in shown):
        return ""
    return f"this host gives {', '.join(sorted(shown)) or 'no policy'} instead"
