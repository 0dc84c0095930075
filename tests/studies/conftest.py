# SPDX-License-Identifier: Apache-2.0
"""Fixtures that the tests of the studies share."""

import pytest

from firsttouch.genomics import aligners
from repeat_study import ALIGNERS, VARIABLE


@pytest.fixture
def aligners_of_studies(monkeypatch):
    """Makes the aligners of the studies known, as a repeated study does."""
    monkeypatch.setenv(VARIABLE, str(ALIGNERS))
    aligners.aligner.cache_clear()
    yield
    aligners.aligner.cache_clear()
