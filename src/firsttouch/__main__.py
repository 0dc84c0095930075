# SPDX-License-Identifier: Apache-2.0
"""``python -m firsttouch`` and the program ``firsttouch``: the command line."""

import os
import signal
import sys

_INTERRUPTED = 128 + signal.SIGINT


def _end(_number: int, _frame: object) -> None:
    """End this process at once: its work has not begun yet, or has ended."""
    os._exit(_INTERRUPTED)


def main() -> int:
    """Run a command and return its exit status: 130 after Ctrl-C, also while Python loads or unloads modules."""
    # A shell's background job ignores it. During the import, which takes most of the start, it is a traceback.
    is_heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_heeded:
        signal.signal(signal.SIGINT, _end)
    from firsttouch import cli  # noqa: PLC0415 - see above

    if not is_heeded:
        return int(cli.main())
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        return int(cli.main())
    except KeyboardInterrupt:  # before or after the command itself
        return _INTERRUPTED
    finally:
        signal.signal(signal.SIGINT, _end)


if __name__ == "__main__":
    sys.exit(main())
