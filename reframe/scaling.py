# SPDX-License-Identifier: Apache-2.0
"""Step 5: one instance, threads x policy (thesis section 5.2.1, figures 5.4 to 5.7)."""

import reframe as rfm
from reframe.core.builtins import parameter

from firsttouch.checks import cases
from firsttouch.checks.aligning import ScenarioCheck


@rfm.simple_test
class scaling(ScenarioCheck):  # noqa: N801
    """The time that one instance takes with some threads under one policy."""

    scenario = parameter(cases.scenarios(single=True))
