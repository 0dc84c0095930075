# SPDX-License-Identifier: Apache-2.0
"""The fixtures of the tests that need a NUMA machine."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from . import machine
from .guest import Guest

#: Machines that boot with this many PUs for each NUMA node, because 64 PUs take half a minute of emulation. Of the
#: Opteron there are still more than the kernel starts itself, so the agent starts PUs, too.
REDUCED = {"amd-opteron": 2}


@pytest.fixture(scope="session")
def guest(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    """An emulated machine, shared by all tests that name it. A module names its machines like this:

    pytestmark = pytest.mark.parametrize("guest", ["small"], indirect=True)

    pytest runs the tests of one machine after the other, whatever their module, so that each machine boots
    once. If the host lacks a program for it, the fixture fails and
    names the package to install; it does not skip.
    """
    described = machine.load(request.param)
    if request.param in REDUCED:
        described = msgspec.structs.replace(described, pus=(REDUCED[request.param],) * len(described.pus))
    with Guest(described, tmp_path_factory.mktemp("shared")) as booted:
        yield booted


@pytest.fixture(scope="session")
def touch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of touch.c."""
    program = tmp_path_factory.mktemp("touch") / "touch"
    source = Path(__file__).with_name("touch.c")
    subprocess.run(["gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", program, source], check=True)
    return program
