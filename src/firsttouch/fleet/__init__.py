# SPDX-License-Identifier: Apache-2.0
"""Campaigns: many measurements on many hosts, in one folder, by any number of jobs that may die at any time.

``campaign.json`` says what is measured and is written once. ``hosts/HOST/`` is written by that host alone:
``records.jsonl``, ``steps.jsonl`` (what began and how it ended, a line each) and the last ``verdict``.
``claims/`` holds who measures what, ``submissions/`` which jobs were submitted. Collecting only reads these, and
makes the report.
"""
