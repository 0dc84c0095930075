# SPDX-License-Identifier: Apache-2.0
"""The fixture of the tests that need a NUMA machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from . import machine
from .guest import Guest


@pytest.fixture(scope="module")
def guest(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    """An emulated machine that is up for all tests of a module; a module names the machine like this:

    pytestmark = [pytest.mark.emulated, pytest.mark.parametrize("guest", ["small"], indirect=True)]

    With several names there is one boot for each, one after the other. What a host lacks for it is an
    error that says what to install, not a skip.
    """
    with Guest(machine.load(request.param), tmp_path_factory.mktemp("shared")) as booted:
        yield booted
