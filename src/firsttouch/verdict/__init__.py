# SPDX-License-Identifier: Apache-2.0
"""The verdict: pass, fail, suspect or invalid per host and metric, with the evidence."""

from firsttouch.verdict.fleet import Divided
from firsttouch.verdict.judge import Judged, Judging, Undescribed, judge, judged, undecided, undecided_cases
from firsttouch.verdict.model import STATUS, Finding, HostVerdict, exit_status, worst

__all__ = [
    "STATUS",
    "Divided",
    "Finding",
    "HostVerdict",
    "Judged",
    "Judging",
    "Undescribed",
    "exit_status",
    "judge",
    "judged",
    "undecided",
    "undecided_cases",
    "worst",
]
