# SPDX-License-Identifier: Apache-2.0
"""Claims of PUs: runs that share a host see which PUs the others bind to.

A claim is a file next to the host lock that its run holds by flock(2), so it always ends with the run. The owner
of the file is the run's user, regardless of its content. Claims are a courtesy: no run fails or waits because of
the content of the folder, which all users may write to.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from firsttouch.errors import BadInput, CannotHere, first_of, os_reason
from firsttouch.execution import host_lock
from firsttouch.host.cpusets import format_list, parse_list
from firsttouch.host.topology import Topology
from firsttouch.records.file_lock import try_lock
from firsttouch.scenarios.placement import Scenario

#: The most bytes of a claim, PUs of a host, and runs in a message.
_MOST_BYTES, _MOST_PUS, _NAMED = 1 << 16, 1 << 16, 3
#: Seconds after which a run goes on although another one holds the lock of the claims.
_PATIENCE = 2.0


class Claim(Struct, frozen=True):
    """The *pus* that a run of *user* with the process number *pid* binds to."""

    pid: int
    user: int
    pus: frozenset[int]

    def text(self) -> str:
        """Return the run in words."""
        return host_lock.describe_process(self.pid, self.user)


@contextlib.contextmanager
def claim_pus(
    scenario: Scenario, host: Topology, planned: Callable[[Topology], Scenario], say: Callable[[str], None]
) -> Iterator[tuple[Scenario, str]]:
    """Claim the PUs of a scenario during the block; yield it and a warning, "" if it shares no PU.

    If other runs have some of the PUs, *planned* returns the scenario on the *host* without these. If too few are
    free, or it raises BadInput or CannotHere, PUs are shared. A scenario of one instance is not bound and claims
    nothing.
    """
    is_bound = any("bind=" in option for placement in scenario.placements for option in placement.numactl)
    if not is_bound:
        yield scenario, ""
        return
    folder, prefix = host_lock.folder(), f"firsttouch-{os.uname().nodename}-claim-"
    with contextlib.ExitStack() as stack:
        with _alone(folder / f"{prefix}lock"):
            claims = _claims(folder, prefix)
            taken = frozenset[int]().union(*(c.pus for c in claims))
            if busy := taken & scenario.pus:
                free = replace(host, allowed_pus=host.allowed_pus - taken)
                if free.usable_pu_count >= scenario.instances * scenario.threads:
                    with contextlib.suppress(BadInput, CannotHere):
                        scenario = planned(free)
            try:
                stack.callback(_withdraw, *_put(folder, prefix, scenario.pus))
            except OSError as error:
                say(f"other runs cannot see which PUs this one uses: {os_reason(error)}")
        warning = ""
        if shared := [c.text() for c in claims if c.pus & scenario.pus]:
            pus = format_list(sorted(scenario.pus & taken))
            warning = f"PUs {pus} are shared with {first_of(shared, _NAMED)}"
        elif busy:
            say(f"PUs {format_list(sorted(busy))} are in use by other runs: this one takes free ones")
        yield scenario, warning


@contextlib.contextmanager
def _alone(file: Path) -> Iterator[None]:
    """Let one run at a time choose its PUs, without waiting for one that hangs."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError, BadInput):  # another user may have put anything there
            handle = host_lock.open_lock_file(file)
            stack.callback(os.close, handle)
            deadline = time.monotonic() + _PATIENCE
            while not try_lock(handle) and time.monotonic() < deadline:
                time.sleep(0.01)
        yield


def _claims(folder: Path, prefix: str) -> list[Claim]:
    """Return the claims of living runs; claims of ended runs are removed where permitted."""
    claims = []
    for file in folder.glob(f"{prefix}*[0-9]-*"):
        with contextlib.suppress(OSError, ValueError, BadInput):
            handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                status = os.fstat(handle)
                if not stat.S_ISREG(status.st_mode):
                    continue
                if try_lock(handle, shared=True):
                    file.unlink()
                    continue
                text = os.read(handle, _MOST_BYTES).decode("ascii")
            finally:
                os.close(handle)
            # Only the form that _put writes: other lists could take long to parse.
            numbers = [int(number) for number in re.split("[-,]", text)]
            if numbers != sorted({*numbers}) or numbers[-1] >= _MOST_PUS:
                continue
            pid = int(file.name.removeprefix(prefix).partition("-")[0])
            claims.append(Claim(pid, status.st_uid, frozenset(parse_list(text))))
    return claims


def _put(folder: Path, prefix: str, pus: frozenset[int]) -> tuple[int, Path]:
    """Write a claim; return the descriptor that holds it, and its file."""
    import tempfile  # noqa: PLC0415 - for scenarios that are bound

    handle, name = tempfile.mkstemp(prefix=f"{prefix}{os.getpid()}-", dir=folder)
    try:
        try_lock(handle)
        os.fchmod(handle, 0o644)
        os.write(handle, format_list(pus).encode("ascii"))
    except OSError:
        _withdraw(handle, Path(name))
        raise
    return handle, Path(name)


def _withdraw(handle: int, file: Path) -> None:
    with contextlib.suppress(OSError):
        file.unlink()
    os.close(handle)
