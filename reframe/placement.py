# SPDX-License-Identifier: Apache-2.0
"""Step 6: several instances x threads x policy (thesis section 5.2.2, table 5.2, figures 5.8 to 5.11)."""

import reframe as rfm
from reframe.core.builtins import parameter

from firsttouch.benchmarks.cases import cases
from firsttouch.benchmarks.checks import ScenarioCheck


@rfm.simple_test
class placement(ScenarioCheck):  # noqa: N801
    """The time of several instances, each with a replica of the index and a share of the reads."""

    tags = {"placement", "production"}
    scenario = parameter(cases().scenarios(single=False))
