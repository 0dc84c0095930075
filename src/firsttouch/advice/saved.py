# SPDX-License-Identifier: Apache-2.0
"""Saved advice: the scenario that was recommended for a program on hosts like this one, and when it applies.

Each advice is one JSON file in :func:`firsttouch.paths.advice`. Its name is a checksum of the :class:`Key`, so
that an advice for the same case replaces it.
"""

from __future__ import annotations

import datetime
import math
import re
import shlex
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

import firsttouch
from firsttouch import documents, paths
from firsttouch.errors import BadInput, FirstTouchError, none_such
from firsttouch.host.topology import Topology
from firsttouch.scenarios.placement import Scenario, plan

if TYPE_CHECKING:
    from firsttouch.genomics.aligners import Aligner
    from firsttouch.genomics.command_line import UserCommand
    from firsttouch.genomics.command_syntax import Argument

#: The document's type; increment SCHEMA when a key changes its meaning.
DOCUMENT = "firsttouch saved advice"
SCHEMA = 2
#: Advice for a run is not used for runs with more than this multiple of its bases.
MAGNITUDE = 10
#: A word that may name a file: it has no space, and has a folder or a suffix that begins with a letter.
_FILE = r"\S*(?:/\S*|\.[A-Za-z]\w*)\Z"
#: Suffixes of files that are part of the program, not its data.
_CODE = r"(?i)\.(?:py|pl|rb|r|jl|js|lua|sh|bash|awk|sed|jar|class|m)$"
#: A read group as text, and the options that set one (bowtie2 --rg-id x --rg SM:y, strobealign --rg=SM:y).
_READ_GROUP = r"@RG|[A-Z]{2}:"
_READ_GROUP_OPTION = r"(?i)--(?:sam-)?rg\b"
_GIB = 2**30


# ----------------------------------------------------------------------
# When advice applies


class Key(Struct, frozen=True):
    """The case to which advice applies.

    *host* describes the host without its name, so equal hosts share advice. *program* is the name of the aligner
    or of the program, *version* the version of the aligner. *index* has the name and size of the aligner's index.
    *threads* is the total of all instances, *mates* the reads of a record (0: no aligner). *words* are the
    program's options, without names of data files.
    """

    host: str
    program: str
    threads: int
    words: tuple[str, ...] = ()
    version: str = ""
    index: str = ""
    mates: int = 0

    @property
    def id(self) -> str:
        """The name of the advice's file without its suffix."""
        return f"{zlib.crc32(msgspec.json.encode(self)):08x}"  # hashlib loads OpenSSL


def describe_host(host: Topology) -> str:
    """Return a host as text: its processor, and for each NUMA node the usable PUs and cores and the memory.

    Two jobs with equal parts of equal hosts have the same text, regardless of the numbers of their PUs.
    """
    core = {pu.index: pu.core for pu in host.pus}
    nodes = []
    for node in host.numa_nodes:
        pus = host.usable_pus(node.index)
        memory = node.memory_bytes if node.index in host.memory_nodes else 0
        nodes.append(f"{len({core[pu] for pu in pus})}c{len(pus)}t{_about(memory)}GiB")
    return " ".join([host.info.get("CPUModel", "processor"), *sorted(nodes, reverse=True)])


def _about(memory_bytes: int) -> int:
    """Return the power of two nearest to an amount of memory in GiB, at least 1; 0 for none.

    Equal hosts differ by the firmware's reserved memory, and a virtual machine's memory may change while it runs.
    """
    return 2 ** max(0, round(math.log2(memory_bytes / _GIB))) if memory_bytes else 0


def program_key(host: Topology, words: Sequence[str], threads: int) -> Key:
    """Return the key of any program, called by *words*."""
    options = tuple(filter(None, map(_without_data, words[1:])))
    return Key(describe_host(host), Path(words[0]).name, threads, options)


def _without_data(word: str) -> str:
    """Return a word without names of data files; a program's file is reduced to its name."""
    option, sign, value = word.rpartition("=")
    if option.startswith("-") and sign:
        return f"{option}={_without_data(value)}"
    if not (re.match(_FILE, word) or _exists(word)):
        return word
    return Path(word).name if re.search(_CODE, word) else ""


def _exists(word: str) -> bool:
    try:
        return Path(word).exists()
    except (OSError, ValueError):  # too long for a name, or with a null byte
        return False


def aligner_key(host: Topology, aligner: Aligner, index: Path, *, threads: int, mates: int) -> Key:
    """Return the key of an aligner with the user's options; raises BadInput or Missing without its index.

    The key has all options except files and the name of the read group.
    """
    items: Sequence[Argument] = ()
    if aligner.own and aligner.command:
        from firsttouch.genomics.command_syntax import divide  # noqa: PLC0415 - programs need no aligner

        items = divide(replace(aligner.command, operands=()), aligner.own, 0).items
    return _of_aligner(host, aligner, index, items, threads=threads, mates=mates)


def command_key(host: Topology, command: UserCommand, threads: int) -> Key:
    """Return the key of a user's aligner command, whose instances have *threads* threads in total.

    It equals the key of the aligner with the same options. Raises BadInput or Missing without its index.
    """
    if command.index is None:
        raise BadInput(f"the index is unknown: {command.as_typed()}")
    items = [a for a in command.arguments.items if a.name and not a.role]
    return _of_aligner(host, command.aligner, command.index, items, threads=threads, mates=command.mates)


def _of_aligner(
    host: Topology, aligner: Aligner, index: Path, items: Iterable[Argument], *, threads: int, mates: int
) -> Key:
    own = sorted(
        shlex.join([argument.name, *values])
        for argument in items
        for values in [[_without_data(value) for value in argument.values if not re.match(_READ_GROUP, value)]]
        if (values or not argument.values) and not re.match(_READ_GROUP_OPTION, argument.name)
    )
    name = f"{index.name}, {aligner.index_bytes(index)} bytes"
    return Key(describe_host(host), aligner.name, threads, tuple(own), aligner.version(), name, mates)


# ----------------------------------------------------------------------
# The files


class Saved(Struct, frozen=True):
    """A stored advice: the name of the *scenario*, the *gain* over the default run (None: unknown), and its time.

    *details* is the JSON document of the advice.
    """

    key: Key
    scenario: str
    gain: dict[str, float] | None
    time: str
    details: dict[str, Any]

    def __post_init__(self) -> None:
        """Raise ValueError for a gain that lacks a number, and for an invalid time or number of bases."""
        if self.gain is not None and not {"expected", "low", "high"} <= self.gain.keys():
            raise ValueError("gain needs expected, low and high")
        datetime.datetime.fromisoformat(self.time)
        if not isinstance(self.details.get("bases", 0), int):
            raise ValueError("details.bases is not a whole number")

    def refusal(self, host: str) -> str:
        """Return why it does not apply on this *host* (as :func:`describe_host` says), or an empty string."""
        if self.key.host != host:
            return self.key.host
        from firsttouch.genomics import aligners  # noqa: PLC0415 - programs need no aligner

        try:
            version = self.key.version and aligners.aligner(self.key.program).version()
        except FirstTouchError as error:
            return str(error)
        return "" if version == self.key.version else f"it is for version {self.key.version}"

    def outgrown(self, bases: float | None) -> str:
        """Return why the advice does not apply to a run of *bases* (None: unknown), or an empty string."""
        advised = self.details.get("bases")  # not for any program
        if bases is None or not advised or bases < MAGNITUDE * advised:
            return ""
        before, now = (f"{size / 1e6:.3g} million bases" for size in (advised, bases))
        return f"it is from a run of {before}, and this one has about {now}"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        about = {"document": DOCUMENT, "schema": SCHEMA, "firsttouch": firsttouch.__version__, "id": self.key.id}
        return {**about, **msgspec.to_builtins(self)}


def save(
    key: Key,
    scenario: str,
    gain: dict[str, float] | None,
    details: dict[str, Any],
    say: Callable[[str], None],
) -> Path:
    """Store advice and return its file; a failure is only said, because the advice was printed."""
    import json  # noqa: PLC0415 - most commands save no advice

    from firsttouch.records import atomic_files  # noqa: PLC0415

    file = _file(key.id)
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    text = json.dumps(Saved(key, scenario, gain, now, details).to_dict(), indent=2) + "\n"
    try:
        file.parent.mkdir(0o775, parents=True, exist_ok=True)
        with atomic_files.replace(file) as partial:
            partial.write_text(text, encoding="utf-8")
        atomic_files.set_mode(file, file.stat().st_mode & 0o775)
        say(f"advice saved for `firsttouch run -- COMMAND`: {file}")
    except OSError as error:
        say(f"{file}: the advice cannot be saved: {error.strerror}")
    return file


def lookup(key: Key, say: Callable[[str], None]) -> Saved | None:
    """Return the advice for *key*, or None; *say* gets why a file, or advice for another version, is ignored."""
    file = _file(key.id)
    try:
        advice = _read(file) if file.exists() else None
        for other in () if advice or not key.version else entries(lambda _: None):
            if replace(other.key, version=key.version) == key:
                reason = f"it is for version {other.key.version}, and this is {key.version}"
                say(f"the advice of {other.time[:10]} for {key.program} is not followed: {reason}")
    except BadInput as error:
        say(f"saved advice is ignored: {error}")
        return None
    return advice if advice and advice.key == key else None  # two keys may have one checksum


def advised_scenario(
    host: Topology, words: Sequence[str], threads: int | None, say: Callable[[str], None]
) -> Scenario:
    """Return the scenario of one instance that was advised for a program, else the one without a policy.

    The program uses *threads* threads (None: all usable PUs); *say* gets the scenario and the reason.
    """
    planned = plan(host)
    usual = planned.single_instance("1x-default", threads)
    advice = lookup(program_key(host, words, usual.threads), say)
    if advice is not None:
        try:
            scenario = planned.single_instance(advice.scenario, threads)
            say(f"firsttouch: {words[0]} under {scenario.name}, as advised on {advice.time[:10]}")
            return scenario
        except FirstTouchError as error:
            say(f"firsttouch: the advice of {advice.time[:10]} for {words[0]} does not fit this host now: {error}")
            return usual
    say(
        f"firsttouch: {words[0]} runs as it is: there is no advice for it on this host; to get one: "
        f"firsttouch advise -- {shlex.join(words)}"
    )
    return usual


def entries(say: Callable[[str], None]) -> Iterator[Saved]:
    """Yield all stored advice; a file that is not advice is reported through *say*. Raises OSError."""
    folder = paths.advice()
    for file in sorted(f for f in folder.iterdir() if f.suffix == ".json") if folder.exists() else ():
        try:
            yield _read(file)
        except BadInput as error:
            say(str(error))


def forget(number: str) -> None:
    """Delete the advice with that id; raises BadInput if it does not exist."""
    names = [file.stem for file in sorted(paths.advice().glob("*.json"))]
    if number not in names:
        raise BadInput(none_such("saved advice", number, names))
    _file(number).unlink(missing_ok=True)


def _file(name: str) -> Path:
    return paths.advice() / f"{name}.json"


def _read(file: Path) -> Saved:
    """Return the advice in *file*; raises BadInput for anything else, or for another version."""
    # The owner of the folder can replace every file in it, so the owner's files are trusted.
    if others := {file.lstat().st_uid, file.stat().st_uid} - paths.deciders(file.parent):
        reason = f"saved advice of another user ({min(others)}), who does not own its folder either"
        raise BadInput(reason, file=file)
    mode = file.parent.stat().st_mode
    # The sticky bit keeps users from replacing the files of others.
    if (file.stat().st_mode | (0 if mode & stat.S_ISVTX else mode)) & stat.S_IWOTH:
        raise BadInput("saved advice that every user may change: `chmod o-w` it and its folder", file=file)
    again = "`firsttouch advise` writes it again"
    data = documents.read_json(file, "saved advice", document=DOCUMENT, schema=SCHEMA, form=Saved, again=again)
    saved = msgspec.convert(data, Saved)
    if saved.key.id != file.stem:
        raise BadInput(f"saved advice for another case, which belongs into {saved.key.id}.json", file=file)
    return saved
