# SPDX-License-Identifier: Apache-2.0
"""Quarantine: which hosts are due, and bad hosts held in reservations, tested there, and released or drained.

In: verdicts, the site's settings, and Slurm's state. Out: the log of verdicts, reservations, jobs, drained
hosts, and the journal ``fleet/actions.jsonl`` in the folder for results.

Public: :mod:`measuring` (judges the hosts of measuring jobs), :mod:`verdict_log`, :mod:`exclusion`,
:class:`tending.Round`, :func:`tending.due` (which hosts are due), :class:`actions.Actions`, and
:func:`site_settings.load`.
"""
