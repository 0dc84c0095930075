# SPDX-License-Identifier: Apache-2.0
"""What the checks of scenarios share: the index, and a reference run whose alignments all others must equal."""

from __future__ import annotations

from reframe.core.builtins import fixture, parameter, run_after, run_before, variable

from firsttouch.checks import cases
from firsttouch.checks.base import FirstTouchCheck
from firsttouch.measure import effort


class ReferenceRun(FirstTouchCheck):
    """Builds the index once and aligns all reads with one instance: the alignments every scenario must give."""

    aligner = parameter(cases.aligners())
    dataset = variable(str, value=effort.default_dataset())
    repetitions = 1

    @run_after("init")
    def set_command(self) -> None:
        """Run the default scenario."""
        self.descr = f"reference run of {self.aligner} on {self.dataset}"
        asked = ["--aligner", self.aligner, "--dataset", self.dataset, "--checksum"]
        self.command = ["run", "1Inst_Original", *asked]

    @property
    def sha256(self) -> str:
        """Checksum of what the alignments must all have in common."""
        return str(self._records()[0].parameters["common_sha256"])


class ScenarioCheck(FirstTouchCheck):
    """One scenario of one aligner; ``-S dataset=NAME`` chooses the data."""

    reference_run = fixture(ReferenceRun, scope="partition")
    #: Set by the check: a parameter of scenario names.
    scenario: str

    @run_before("run")
    def set_command(self) -> None:
        """Run the scenario, on the data of the reference run."""
        first = self.reference_run
        self.executable_opts = [
            *("run", self.scenario, "--aligner", first.aligner, "--dataset", first.dataset),
            *("--expect-sha256", first.sha256, *self.executable_opts),
        ]
