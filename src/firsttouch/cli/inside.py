# SPDX-License-Identifier: Apache-2.0
"""``firsttouch inside``: runs a command of firsttouch in a container, or with the programs of a Spack view."""

from __future__ import annotations

import argparse
import os

from firsttouch.cli import options
from firsttouch.errors import BadInput
from firsttouch.execution import backends

EXAMPLES = """\
  firsttouch inside apptainer -- topology
  firsttouch inside --image containers/membench.sif apptainer -- measure bandwidth --pu-nodes 0 --banks 0
  firsttouch inside spack -- run 1x-default --aligner bwa-mem --dataset lambda"""


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    parser = options.command(subparsers, "inside", run, EXAMPLES)
    parser.add_argument("backend", choices=backends.NAMES, help="where the programs come from")
    image = "image ($FIRSTTOUCH_IMAGE or containers/firsttouch.sif) or view ($FIRSTTOUCH_VIEW, .cache/spack)"
    options.add(parser, "--image", type=str, help=image)
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND", help="the command, after --")


def run(args: argparse.Namespace) -> int:
    """Replace this process by the command, which thus gets its signals and sets its exit status."""
    words = args.words[1:] if args.words[:1] == ["--"] else args.words
    if words and words[0].partition("=")[0] == "--image":
        raise BadInput(f"'{words[0]}' goes before the backend's name")
    if not words:
        raise BadInput("no command: give one of firsttouch's after --")
    start = backends.start_with(args.backend, args.image, words)
    os.execve(start.argv[0], list(start.argv), dict(start.env))  # noqa: S606  (no shell is wanted)
