# SPDX-License-Identifier: Apache-2.0
"""Advice: which scenario to run a program under, and the program under it.

In: the scenarios of a plan, the host's topology, the reads and a time budget. Out: the
recommended scenario with its expected time and gain as 90 % intervals, and a reason for each scenario that is not
recommended.

NUMA costs by a rule of thumb (:mod:`costs`, which needs no numpy) order the scenarios before anything runs; they
are the mean of the prior (:func:`posterior.prior`). Short trials on samples of the reads update it
(:func:`posterior.update`), and the knowledge gradient chooses each trial (:func:`search.search`).

Public: :mod:`advising` (advice for an aligner on given reads, a user's command, any program), by
:func:`trials.advise` (aligners) and :func:`comparison.compare` (any program); :func:`costs.latency_ratio`,
``candidates``, ``default`` and ``index_banks``, which turn a host and its plan into the model's input;
:mod:`advice_text` (JSON document, text, stored files); :mod:`saved` (advice that is reused for equal cases);
:class:`auto.Auto` (the scenario of a user's command).
"""

#: The part of the whole run that trials may take.
BUDGET = 0.03
