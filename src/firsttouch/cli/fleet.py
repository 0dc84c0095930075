# SPDX-License-Identifier: Apache-2.0
"""``firsttouch fleet``: the life of a fleet, with one action per stage of a host's life."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from firsttouch import paths
from firsttouch.cli import fleet_due, fleet_history, options
from firsttouch.fleet import site_settings

EXAMPLES = """\
  firsttouch fleet settings                      the site's settings, and the files they come from"""


def register(subparsers: options.Subparsers) -> None:
    """Add the command and its actions."""
    parser = options.command(subparsers, "fleet", EXAMPLES)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    fleet_due.register(actions)
    settings = options.action(actions, "settings", "print the site's settings of fleet.yaml", EXAMPLES)
    settings.set_defaults(run=show_settings)
    fleet_history.register(actions)


def show_settings(args: argparse.Namespace) -> int:
    """Print the settings that apply here; times are in seconds."""
    document = asdict(site_settings.load())
    files = [str(file) for file in paths.tables_of(site_settings.NAME)]
    if args.json:
        options.print_json({"files": files, **document})
        return 0
    print(f"files: {', '.join(files) or f'none, these are the defaults ({paths.site() / site_settings.NAME})'}")
    for section, values in document.items():
        for name, value in values.items() if isinstance(values, dict) else [("", values)]:
            text = " ".join(map(str, value)) if isinstance(value, tuple) else value
            print(f"{'.'.join(filter(None, (section, name))):20} {text}")
    return 0
