# SPDX-License-Identifier: Apache-2.0
"""The checks of the site: one per file checks/NAME.yaml in the user's and the site's folders."""

import reframe as rfm
from reframe.core.builtins import parameter, run_after

from firsttouch.benchmarks import site_checks
from firsttouch.benchmarks.checks import FirstTouchCheck

# ReFrame warns of a parameter without values.
if site_checks.names():

    @rfm.simple_test
    class site(FirstTouchCheck):  # noqa: N801
        """A program of the site, under a verified placement."""

        tags = {"site"}
        program = parameter(site_checks.names())

        @run_after("init")
        def set_command(self):
            self.descr = f"check {self.program} of the site"
            self.command = ["run", "--check", self.program]
