# SPDX-License-Identifier: Apache-2.0
"""The memory options of memory_options.json and of a site's memory_options.toml; adding one needs no code.

An option sets the page size, the allocator, or where the pages of an index lie.
:mod:`firsttouch.scenarios.evidence` compares them with the kernel's view of a running program.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import mmap
import operator
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, get_args

from msgspec import Meta, field

from firsttouch import documents
from firsttouch.documents import FileTable, Word, Words
from firsttouch.errors import BadInput, FirstTouchError, none_such
from firsttouch.host import kernel_files
from firsttouch.tools import run_tool

Kind = Literal["pages", "allocator", "index"]
#: Where the instances of a scenario read their index from.
Copies = Literal["own", "none", "node", "all"]
_Env = Mapping[Annotated[str, Meta(pattern=r"^[A-Z_][A-Z0-9_]*\Z")], Word]
_Part = Annotated[float, Meta(ge=0, le=1, description="a number from 0 to 1")]
#: Variables that are lists, to which an option adds a value, with the separator.
_JOINED = {"LD_PRELOAD": ":", "GLIBC_TUNABLES": ":"}
_PR_SET_THP_DISABLE = 41
#: The bytes of an ELF header, and the kind of the entry that names the dynamic linker (elf(5)).
_ELF_BYTES, _PT_INTERP = 64, 3
#: The variable with the tunables of glibc, and why a program ignores it.
_TUNABLES, _NO_GLIBC = "GLIBC_TUNABLES", "is not linked with glibc"


class Setting(FileTable, frozen=True):
    """A file of the kernel whose word in brackets must be one of *choices*."""

    file: Word
    choices: Words


class MemoryOption(FileTable, frozen=True, eq=False):
    """One memory option. The fields are the keys of the files (docs/reference/data-files.md)."""

    name: str
    title: Word
    kind: Kind
    env: _Env = field(default_factory=dict)
    preload: Words = ()
    package: Word = ""
    thp_disable: bool = False
    setting: Setting | None = None
    positive: Words = ()
    huge: tuple[_Part, _Part] | None = None
    hugetlb: _Part = 0.0
    with_: Mapping[str, _Env] = field(default_factory=dict)
    copies: Copies = "own"
    note: str = ""  # for readers of the file

    @property
    def library(self) -> str:
        """The name of the library that LD_PRELOAD loads, an empty string for none."""
        return _library(self.preload) if self.preload else ""


def parse(text: str, file: str) -> dict[str, MemoryOption]:
    """Return the options of a text in TOML or JSON; raises BadInput naming *file*, the line and the entry."""
    # The names become parts of scenario names.
    return documents.parse_table(text, file).entries(MemoryOption, r"^[a-z]+(-[a-z]+)*\Z")


@functools.cache
def _library(names: tuple[str, ...]) -> str:
    """Return the first of a library's *names* in the cache of the dynamic linker, else the first name."""
    try:
        cache = Path("/etc/ld.so.cache").read_bytes()
    except OSError:  # musl has no cache
        cache = b""
    return next((name for name in names if name.encode() + b"\0" in cache), names[0])


@functools.cache
def options() -> dict[str, MemoryOption]:
    """Return all options by name, in the order of kinds and of memory_options.json; a site's file adds to them."""
    by_name = functools.reduce(operator.or_, documents.tables("memory_options.toml", parse))
    kinds = get_args(Kind)
    return dict(sorted(by_name.items(), key=lambda item: kinds.index(item[1].kind)))


def libraries() -> frozenset[str]:
    """Return the names of the libraries that options load."""
    return frozenset(Path(o.library).name for o in options().values() if o.library)


def option(name: str) -> MemoryOption:
    """Return an option by name; raises BadInput, which lists the names, for an unknown name."""
    try:
        return options()[name]
    except KeyError:
        raise BadInput(none_such("memory option", name, options())) from None


def parse_suffix(text: str) -> tuple[str, ...]:
    """Return the options of a scenario's suffix, such as ``thp+mimalloc``, in their order; raises BadInput."""
    if not text:
        return ()
    chosen = [option(name) for name in dict.fromkeys(text.lower().split("+"))]
    for kind in get_args(Kind):
        names = [o.name for o in chosen if o.kind == kind]
        if len(names) > 1:
            raise BadInput(f"{' and '.join(names)} exclude each other: both are options of the kind '{kind}'")
    return tuple(name for name in options() if option(name) in chosen)


def suffix(names: Sequence[str]) -> str:
    """Return the suffix of a scenario's name for options: ``+thp+mimalloc``, or an empty string."""
    return "".join(f"+{name}" for name in names)


def option_of_kind(names: Sequence[str], kind: Kind) -> MemoryOption | None:
    """Return the option of one kind among *names*, or None."""
    return next((option(name) for name in names if option(name).kind == kind), None)


def index_copies(names: Sequence[str]) -> Copies:
    """Return where instances with the options *names* have their index: each its own without an index option."""
    index = option_of_kind(names, "index")
    return index.copies if index else "own"


def select_options(text: str, kinds: Sequence[Kind] = ("pages", "allocator")) -> tuple[str, ...]:
    """Return the options of ``none``, ``all`` or a comma-separated list of names; raises BadInput.

    Options of other *kinds* are not in ``all``, nor are options without an effect (index: private).
    """
    if text == "none":
        return ()
    listed = [o for o in options().values() if o.kind in kinds and (o.kind != "index" or o.copies != "own")]
    named = listed if text == "all" else [option(name) for name in dict.fromkeys(text.lower().split(","))]
    if others := [o.name for o in named if o.kind not in kinds]:
        raise BadInput(f"{' and '.join(others)}: only aligners have an index whose copies can be chosen")
    return tuple(o.name for o in listed if o in named)


def select_for_aligner(text: str) -> tuple[str, ...]:
    """Return the options of such a list that are tried with an aligner; raises BadInput.

    Options of its index are tried only if they are named, because copies need time and memory.
    """
    return select_options(text) if text == "all" else select_options(text, get_args(Kind))


def combinations(names: Sequence[str], program: str = "") -> tuple[list[tuple[str, ...]], dict[str, str]]:
    """Return the sets of *names* that this host supports for *program*, and by option the reasons against others.

    A set has at most one option of each kind.
    """
    refused = {name: reason for name in names if (reason := refusal([name]) or unfit([name], program))}
    by_kind = [
        [None, *(name for name in names if option(name).kind == kind and name not in refused)]
        for kind in get_args(Kind)
    ]
    sets = [tuple(name for name in some if name) for some in itertools.product(*by_kind)]
    return [some for some in sorted(sets, key=len) if some and not refusal(some)], refused


# ----------------------------------------------------------------------
# Setting the options for a program


def environment(names: Sequence[str], base: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that set the options, to be added to the environment *base*."""
    added: dict[str, str] = {}
    allocator, pages = option_of_kind(names, "allocator"), option_of_kind(names, "pages")
    for chosen in map(option, names):
        # The variables of page sizes configure glibc's malloc, which an allocator replaces.
        own = {} if allocator and chosen is pages else chosen.env
        preload = {"LD_PRELOAD": chosen.library} if chosen.library else {}
        for variable, value in {**own, **preload}.items():
            before = added.get(variable, base.get(variable, ""))
            separator = _JOINED.get(variable)
            added[variable] = f"{before}{separator}{value}" if before and separator else value
    if allocator and pages:
        added |= allocator.with_.get(pages.name, {})
    return added


@contextlib.contextmanager
def inherit_settings(names: Sequence[str]) -> Iterator[None]:
    """Switch transparent huge pages off during the block; programs inherit this from their parent."""
    if not any(option(name).thp_disable for name in names):
        yield
        return
    import ctypes  # noqa: PLC0415 - few options need it

    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_PR_SET_THP_DISABLE, 0, 0, 0, 0)


# ----------------------------------------------------------------------
# Which options this host and a program support


def refusal(names: Sequence[str]) -> str:
    """Return why this host does not support the options, or an empty string; where possible, they are tried."""
    allocator, pages = option_of_kind(names, "allocator"), option_of_kind(names, "pages")
    if allocator and pages and pages.name not in allocator.with_:
        return f"{allocator.name} does not support {pages.name}: leave one of them out"
    return next(filter(None, map(_refusal, names)), "")


@functools.cache
def _refusal(name: str) -> str:
    chosen = option(name)
    reason = _unset(chosen) or (_not_loaded(chosen) if chosen.library else "")
    return f"memory option {name}: {reason}" if reason else ""


def _unset(chosen: MemoryOption) -> str:
    """Return which kernel setting an option needs, or an empty string."""
    if chosen.setting:
        file, choices = chosen.setting.file, chosen.setting.choices
        try:
            current = re.search(r"\[(.+?)\]", Path(file).read_text(encoding="ascii"))
        except OSError as error:
            return f"{file}: {error.strerror}"
        if not current or current[1] not in choices:
            now = current[1] if current else "not set"
            return f"{file} is {now}: an administrator must set it to {' or '.join(choices)}"
    if chosen.positive and not any(kernel_files.number(Path(file)) for file in chosen.positive):
        return f"{' and '.join(chosen.positive)} are 0, an administrator must reserve huge pages"
    return ""


def _not_loaded(chosen: MemoryOption) -> str:
    """Run a program with the library of an option and return why it is not loaded, or an empty string."""
    try:
        done = run_tool(["cat", "/proc/self/maps"], env={**os.environ, "LD_PRELOAD": chosen.library})
    except FirstTouchError as error:
        return f"it cannot be tried: {error}"
    # The file's name is usually longer: libx.so.2 is a link to libx.so.2.0.
    if f"/{Path(chosen.library).name}" in done.stdout:
        return ""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    reason = f" ({lines[0]})" if lines else ""
    source = f": install its package (Debian: {chosen.package})" if chosen.package else ""
    return f"{chosen.library} cannot be loaded{source}{reason}"


def unfit(names: Sequence[str], program: str) -> str:
    """Return why *program* ignores the library or the tunables of an option, or an empty string.

    The dynamic linker loads it into programs that are linked dynamically with glibc and have no more rights than
    their user (ld.so(8), "Secure-execution mode").
    """
    allocator = option_of_kind(names, "allocator")
    tuned = next((name for name in names if _TUNABLES in option(name).env), None)
    file = shutil.which(program)
    preloaded = allocator is not None and allocator.library
    if file is None or not (preloaded or tuned):
        return ""
    reason = _ignores_preload(Path(file))
    if allocator is not None and preloaded:
        return f"{program} {reason}, so {allocator.name} cannot be loaded into it" if reason else ""
    # A program that is linked statically may have glibc in it.
    return f"{program} {reason}, so it ignores {tuned}" if reason == _NO_GLIBC else ""


def _ignores_preload(file: Path, depth: int = 4) -> str:
    try:
        with file.open("rb") as stream:
            content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        if reason := _other_rights(file):
            return reason
    except (OSError, ValueError):
        return ""  # a program that may be run but not read, or is empty
    if content[:2] == b"#!" and depth:
        words = content.readline()[2:].decode(errors="surrogateescape").split()
        interpreter = shutil.which(words[-1] if words[0].endswith("/env") else words[0]) if words else None
        return _ignores_preload(Path(interpreter), depth - 1) if interpreter else ""
    if content[:4] != b"\x7fELF" or len(content) < _ELF_BYTES:
        return ""
    if not (linker := _linker(content)):
        return "is linked statically"
    return "" if b"/ld-linux" in linker or b"/ld64.so" in linker else _NO_GLIBC


def _other_rights(file: Path) -> str:
    """Return which rights a program gets beyond its user's, or an empty string."""
    state = file.stat()
    others = (state.st_mode & stat.S_ISUID and state.st_uid != os.getuid()) or (
        state.st_mode & stat.S_ISGID and state.st_gid != os.getgid()
    )
    if others:
        return "runs with the rights of another user (setuid or setgid)"
    return "runs with capabilities of its file" if "security.capability" in os.listxattr(file) else ""


def _linker(content: mmap.mmap) -> bytes:
    """Return the dynamic linker of an ELF program (elf(5), PT_INTERP); empty if it has none."""
    import struct  # noqa: PLC0415 - most runs set no option

    order, is_64 = "<" if content[5] == 1 else ">", content[4] == 2
    (table,) = struct.unpack_from(f"{order}{'Q' if is_64 else 'I'}", content, 32 if is_64 else 28)
    size, count = struct.unpack_from(f"{order}HH", content, 54 if is_64 else 42)
    entry = struct.Struct(f"{order}I4xQ16xQ" if is_64 else f"{order}II8xI")
    for place in range(table, table + count * size, size or 1):
        if place + entry.size > len(content):
            break
        kind, start, length = entry.unpack_from(content, place)
        if kind == _PT_INTERP:
            return content[start : start + length].rstrip(b"\0") or b"?"
    return b""
