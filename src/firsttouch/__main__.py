# SPDX-License-Identifier: Apache-2.0
"""``python -m firsttouch`` and the program ``firsttouch``: the command line."""

import atexit
import gc
import os
import signal
import sys

_INTERRUPTED = 128 + signal.SIGINT


def _end(_number: int, _frame: object) -> None:
    """End this process at once: its work has not begun yet, or has ended."""
    os._exit(_INTERRUPTED)


def _run() -> int:
    """Run a command and return its exit status: 130 after Ctrl-C, also while Python loads or unloads modules."""
    gc.set_threshold(50_000)  # more than a command allocates while it loads
    # A shell's background job ignores interrupts; in other processes one would be a traceback while modules load.
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_default:
        signal.signal(signal.SIGINT, _end)
    # msgspec imports typing_extensions only for names that the typing of this Python has, which takes a tenth of
    # the CPU time of `firsttouch --version`. None is the import system's way to refuse a module.
    sys.modules.setdefault("typing_extensions", None)  # type: ignore[arg-type]
    from firsttouch import cli  # noqa: PLC0415 - see above

    if sys.modules["typing_extensions"] is None:
        del sys.modules["typing_extensions"]
    try:
        if is_default:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return int(cli.main())
    except KeyboardInterrupt:  # before or after the command itself
        return _INTERRUPTED
    finally:
        if is_default:
            signal.signal(signal.SIGINT, _end)


def main() -> int:
    """Run a command; end the process, or return the exit status if it has other callers or threads.

    Python would unload its modules first, which takes a twentieth of the CPU time of a short command. A test, a
    debugger and a profiler are further callers.
    """
    status = _run()
    if sys._getframe(1).f_back is None and len(sys._current_frames()) == 1:
        atexit._run_exitfuncs()  # as Python does at its end
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status


if __name__ == "__main__":
    sys.exit(main())
