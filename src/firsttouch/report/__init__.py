# SPDX-License-Identifier: Apache-2.0
"""The report of a run: index.html for people, summary.md for a ticket, summary.json for machines.

Importing this package does not import matplotlib; :func:`firsttouch.report.pages.build` does.
"""
