# SPDX-License-Identifier: Apache-2.0
"""The report of a fleet: missing results, verdicts, hosts x metrics, history; and comparisons.

The input is :class:`firsttouch.judge.findings.Findings`, a table of columns, so that large fleets stay cheap. Only
outliers become rows and drawings. Public: ``fleet_pages.build``, ``fleet_pages.worst``, ``comparison.compare`` and
``comparison.build``.
"""
