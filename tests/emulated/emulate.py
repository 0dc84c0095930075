# SPDX-License-Identifier: Apache-2.0
"""Runs a command on an emulated NUMA machine (`make emulate`)."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

# This file is started by its path, so its package is not on sys.path.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from emulated import channel, image, machine, services
from emulated.guest import Guest
from firsttouch.errors import FirstTouchError
from firsttouch.units import parse_bytes

EXAMPLES = """\
examples:
  emulate.py --list
  emulate.py --machine small -- numactl --hardware      the command's output and exit status
  emulate.py --machine small -- sh -c 'lstopo --of console | head'
  emulate.py --machine small --memory-per-node 512MiB --share results -- make run
  emulate.py --machine amd-opteron -- reframe -c reframe/ -r --system amd-opteron

The machine's files are this host's, read-only under an overlay: what is written there is gone afterwards,
except in the shared directory, where reports go. Placement is real in there. Speed is not: no latency, no
bandwidth and no counter of a NUMA machine is modelled; records say that they are of an emulated host, and
their speed is not judged. $FIRSTTOUCH_EFFORT is smoke in there, unless it is set.
"""
#: Variables of the caller's environment that a command in the guest inherits.
PASSED_ON = ("PATH", "TERM", "LANG", "VIRTUAL_ENV")


def main() -> int:
    """Run the command line; return the exit status of the command in the guest."""
    arguments = parse_arguments()
    if arguments.list:
        for name in machine.names():
            print(f"{name:<12} {machine.load(name).description}")
        return 0
    chosen = machine.load(arguments.machine)
    if arguments.memory_per_node:
        chosen = chosen.with_memory_per_node(parse_bytes(arguments.memory_per_node))
    shared = arguments.share or image.cache() / "shared"
    shared.mkdir(parents=True, exist_ok=True)
    with Guest(chosen, shared) as guest:
        print(
            f"{chosen.name}: {chosen.description}; booted in {guest.boot_seconds:.0f} s ({guest.accelerator}); "
            f"only {guest.shared} is kept",
            file=sys.stderr,
        )
        environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        environment |= services.settle(guest)
        if arguments.slurm or (arguments.slurm is None and services.has_slurm(chosen.name)):
            begin = time.monotonic()
            environment |= services.start_slurm(guest)
            print(f"Slurm is up after {time.monotonic() - begin:.0f} s", file=sys.stderr)
        environment |= named(arguments.env)
        return guest.stream(arguments.command, write, timeout=None, cwd=Path.cwd(), env=environment)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--list", action="store_true", help="list the machines")
    what.add_argument("--machine", metavar="NAME", help="the machine to boot")
    parser.add_argument("--memory-per-node", metavar="SIZE", help="such as 512MiB, for NUMA nodes with memory")
    parser.add_argument("--share", type=Path, metavar="DIR", help="the directory that is writable and kept")
    parser.add_argument(
        "--slurm",
        action=argparse.BooleanOptionalAction,
        help="start a Slurm of this one host (default: for the machine of a system that is used through Slurm)",
    )
    parser.add_argument("--env", action="append", default=[], metavar="NAME[=VALUE]", help="pass this on too")
    parser.add_argument("command", nargs="*", metavar="-- COMMAND", help="what to run")
    arguments = parser.parse_args()
    if arguments.machine and not arguments.command:
        parser.error("name a command after --")
    return arguments


def named(items: list[str]) -> Mapping[str, str]:
    """Return the variables of --env options: NAME=VALUE, or NAME with the caller's value."""
    parts = [item.partition("=") for item in items]
    return {name: value if given else os.environ.get(name, "") for name, given, value in parts}


def write(kind: bytes, data: bytes) -> None:
    """Write a piece of the command's output to the same stream of this process."""
    stream = sys.stdout if kind == channel.STDOUT else sys.stderr
    stream.buffer.write(data)
    stream.flush()


if __name__ == "__main__":
    try:
        status = main()
    except FirstTouchError as error:
        print(f"emulate: {error}", file=sys.stderr)
        status = error.exit_status
    except OSError as error:
        print(f"emulate: {error}", file=sys.stderr)
        status = 127
    except KeyboardInterrupt:
        status = 130
    # A shell's exit status for a command that a signal killed.
    sys.exit(128 - status if status < 0 else status)
