# SPDX-License-Identifier: Apache-2.0
"""``python -m firsttouch`` and the program ``firsttouch``: the command line."""

import os
import signal
import sys
from types import ModuleType

_INTERRUPTED = 128 + signal.SIGINT


def _end(_number: int, _frame: object) -> None:
    """End this process at once: its work has not begun yet, or has ended."""
    os._exit(_INTERRUPTED)


def _command_line() -> ModuleType:
    """Import the command line, and msgspec without typing_extensions.

    msgspec only imports names from it that this Python's typing has, too, and the import is a tenth of the CPU
    time of `firsttouch --version`.
    """
    is_free = "typing_extensions" not in sys.modules
    if is_free:
        sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # the import system's way to refuse it
    from firsttouch import cli  # noqa: PLC0415 - see above

    if is_free:
        del sys.modules["typing_extensions"]
    return cli


def main() -> int:
    """Run a command and return its exit status: 130 after Ctrl-C, also while Python loads or unloads modules."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # a shell's background job ignores it
        return int(_command_line().main())
    signal.signal(signal.SIGINT, _end)
    cli = _command_line()  # this takes most of the start, and an interrupt would be a traceback
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        return int(cli.main())
    except KeyboardInterrupt:  # before or after the command itself
        return _INTERRUPTED
    finally:
        signal.signal(signal.SIGINT, _end)


if __name__ == "__main__":
    sys.exit(main())
