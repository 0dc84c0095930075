# SPDX-License-Identifier: Apache-2.0
"""The report of many hosts: what is missing, which are not as expected, hosts x metrics, history.

Made of columns (:class:`firsttouch.verdict.Judged`): only what stands out is looked at one by one.
"""

from firsttouch.report.fleet.assemble import FILES, Fleet, build, worst
from firsttouch.report.fleet.changes import compare
from firsttouch.report.fleet.comparison import build as build_comparison

__all__ = ["FILES", "Fleet", "build", "build_comparison", "compare", "worst"]
