# SPDX-License-Identifier: Apache-2.0
"""Quarantine: which hosts are due, and bad hosts held in reservations, tested there, and released or drained.

In: the log of verdicts, the site's settings, and what Slurm says. Out: reservations, jobs, drained hosts, and
the journal ``fleet/actions.jsonl`` in the folder for results.

Public: :mod:`screening` (which hosts are due), :mod:`drain`, :mod:`exclusion`, :class:`tending.Round`,
:class:`actions.Actions`, and :func:`site_settings.load`.
"""
