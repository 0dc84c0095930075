# SPDX-License-Identifier: Apache-2.0
"""Campaigns: many measurements on many hosts, in one folder, by any number of jobs that may die at any time.

In: a kind of campaign, a system, a dataset, aligners and hosts, and a function that names undecided cases: a
campaign does not judge. Out: records of every host, and the campaign's state with the reason for each missing
result.

A campaign's folder has ``campaign.json``, which lists the steps and is written once; ``hosts/HOST/``, which only
that host writes: ``records.jsonl``, ``steps.jsonl`` (a line when a step begins and when it ends) and the last
``verdict``; ``claims/``, the leases of steps; and ``submissions/``, the submitted jobs.

Public: :mod:`campaigns` (``plan``, ``create``, ``read``), :func:`run.run` on a host, :class:`submit.Again`,
:func:`state.state`, and :func:`state.finished_records`.
"""
