# SPDX-License-Identifier: Apache-2.0
"""``python -m firsttouch`` and the program ``firsttouch``: the command line."""

import os
import signal
import sys

_INTERRUPTED = 128 + signal.SIGINT


def _end(_number: int, _frame: object) -> None:
    """End this process at once: nothing has begun yet, or everything has ended."""
    os._exit(_INTERRUPTED)


def main() -> int:
    """Run a command and return its exit status; Ctrl-C while Python loads or unloads it ends with 130, too."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # a shell's background job ignores it
        from firsttouch import cli  # noqa: PLC0415 - as late as below

        return cli.main()
    signal.signal(signal.SIGINT, _end)
    from firsttouch import cli  # noqa: PLC0415 - this takes most of the start, and an interrupt would be a traceback

    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        return cli.main()
    except KeyboardInterrupt:  # before or after the command itself
        return _INTERRUPTED
    finally:
        signal.signal(signal.SIGINT, _end)


if __name__ == "__main__":
    sys.exit(main())
