# SPDX-License-Identifier: Apache-2.0
"""Short calls of other programs: whether a program is on PATH, and what it prints.

Programs that are measured, watched or stopped are started by :mod:`firsttouch.execution`.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from firsttouch.errors import STOPPING, CannotHere, Missing, RunFailed, TimedOut, os_reason
from firsttouch.units import format_bytes

#: The modules of the extra ``report``, which judging and reports need.
REPORT = ("polars", "reframe", "jinja2", "prometheus_client")
#: The address space (bytes) that they need on hosts with up to 64 PUs. With less, polars aborts the process.
_ADDRESSES = 2 << 30
#: The programs that `make setup` installs or builds; aligners name their packages.
_FROM_SETUP = {"dwgsim", "likwid-bench", "numactl", "perf", "samtools", "setpriv", "stream", "zstd"}


def require(*programs: str) -> None:
    """Raise Missing for the first of *programs* that is not on PATH, or is a file that cannot be run."""
    for program in programs:
        if shutil.which(program) is None:
            if "/" in program:
                file = Path(program)
                reason = "a folder" if file.is_dir() else "not executable" if file.exists() else "not there"
                raise Missing(f"{program} is {reason}")
            if program in _FROM_SETUP:
                raise Missing(f"'{program}' is not on PATH: `make setup` installs it, or install its package")
            raise Missing(f"'{program}' is not on PATH")


def require_package(*modules: str) -> None:
    """Raise Missing for the first of the Python *modules* that is not installed."""
    import importlib.util  # noqa: PLC0415 - most commands do without

    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise lacking_package(module)


def require_report() -> None:
    """Raise Missing, before any work, if a package of the extra ``report`` is not installed.

    Raises CannotHere if the memory limit is so low that these packages would abort this process.
    """
    require_package(*REPORT)
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < _ADDRESSES:
        raise CannotHere(
            f"the packages of the extra 'report' need {format_bytes(_ADDRESSES)} of address space, and the limit "
            f"is {format_bytes(limit)}: raise the limit of memory (ulimit -v)"
        )


def lacking_package(module: str) -> Missing:
    """Return the error for a Python module that is not installed, with the command that installs it."""
    if module not in REPORT:
        return Missing(f"the Python package {module} is not installed: `make setup` installs it")
    import importlib.metadata  # noqa: PLC0415 - only after an error
    import importlib.util  # noqa: PLC0415

    listed = (line.partition(";") for line in importlib.metadata.requires("firsttouch") or ())
    packages = [name.strip() for name, _, condition in listed if "report" in condition]
    # An environment of uv has no pip.
    has_pip = importlib.util.find_spec("pip") is not None
    pip = [sys.executable, "-m", "pip", "install"] if has_pip else ["uv", "pip", "install", "-p", sys.executable]
    command = shlex.join([*pip, *packages])
    return Missing(f"the Python package {module} is not installed; the extra 'report' has it: {command}")


def run_tool(
    argv: Sequence[str],
    *,
    timeout: float | None = 60.0,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    fds: Sequence[int] = (),
) -> subprocess.CompletedProcess[str]:
    """Run a program without input to its end and return its output and its exit status, which may be an error.

    *timeout* is in seconds, *env* the whole environment (None: this process's own), *fds* stay open in it. Raises
    Missing if the program does not exist, TimedOut if it takes longer than *timeout*, and RunFailed if it cannot
    be started.
    """
    process = None
    try:
        with defer_signals():
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env=env,
                cwd=cwd,
                pass_fds=fds,
            )
        out, err = process.communicate(timeout=timeout)
        return subprocess.CompletedProcess(argv, process.returncode, out, err)
    except FileNotFoundError as error:
        raise Missing(f"'{argv[0]}' is not installed: install its package") from error
    except subprocess.TimeoutExpired as error:
        raise TimedOut(f"{' '.join(argv)} did not answer within {timeout:g} s") from error
    except OSError as error:
        raise RunFailed(f"{argv[0]} cannot be started: {os_reason(error)}") from error
    finally:
        if process is not None:
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """Kill a process that still runs, wait for its end, and close its pipes."""
    if process.returncode is None:
        process.kill()
        with contextlib.suppress(ChildProcessError):  # it had ended
            # Popen.wait may wait for ever for a lock that an interrupted call still holds.
            process.returncode = os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1])
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


@contextlib.contextmanager
def defer_signals() -> Iterator[None]:
    """Deliver the signals in STOPPING after the block, so that no half-started program is left behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen: list[int] = []
    before = {n: signal.getsignal(n) for n in STOPPING}
    ours = {n: handler for n, handler in before.items() if callable(handler)}
    for number in ours:
        signal.signal(number, lambda number, _: seen.append(number))
    try:
        yield
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)
        if seen:
            signal.raise_signal(seen[0])


#: Held by the thread that has changed the environment for an import.
_ENVIRONMENT = threading.RLock()


@contextlib.contextmanager
def lean_numpy() -> Iterator[None]:
    """Import numpy, if it is imported in the block, without threads and huge pages.

    Its linear algebra, which starts a thread per PU, is not used. On a host with fragmented memory, the kernel may
    take 20 ms for each huge page. The environment is restored for measured programs. Other callers wait.
    """
    settings = {"OPENBLAS_NUM_THREADS": "1", "NUMPY_MADVISE_HUGEPAGE": "0"}
    with _ENVIRONMENT:
        if "numpy" in sys.modules:
            yield
            return
        before = {name: os.environ.get(name) for name in settings}
        os.environ.update(settings)
        try:
            yield
        finally:
            for name, value in before.items():
                del os.environ[name]
                if value is not None:
                    os.environ[name] = value
