# SPDX-License-Identifier: Apache-2.0
"""The constants of the judge, each with its source: a theorem, a policy, or a table that bench/ prints."""

from __future__ import annotations

from typing import Final

# ----------------------------------------------------------------------
# Policies: the demands of an admin on a verdict

#: The share of validations in which a good host fails, and in which it is suspect.
FAIL_TAIL: Final = 4e-4
SUSPECT_TAIL: Final = 4e-3
#: A smaller loss never blames a host, because good hosts may differ by this much for years.
LEAST_LOSS: Final = 0.025
#: A smaller loss since a stable period never fails a host, because boots and exchanged parts may cause it.
LEAST_OWN_LOSS: Final = 0.04
#: A host that seems to lose this much does not pass while its limit is too wide to decide.
DOUBTFUL_LOSS: Final = 0.05
#: A pass needs a sight of this loss for each part: one missing channel of five. A system's file may state another.
PASS_SIGHT: Final = 0.2
#: A metric that is this number of times better than its siblings was measured wrongly.
IMPOSSIBLE: Final = 4.0
#: The fewest hosts that are compared with each other.
FEWEST_HOSTS: Final = 4
#: The fewest sessions of a stable period, and of a bad one after it, because one bad session may be a disturbance.
STABLE_SESSIONS, BAD_SESSIONS = 5, 2
#: A loss since a stable period that exceeds its limit by this factor fails in its first session.
SUDDEN_LIMITS: Final = 2.0
#: The fewest hosts that change together: their number, and their share of all hosts.
UPDATED_HOSTS, UPDATED_SHARE = 3, 0.1
#: Steps of hosts are one update of a few if they differ by at most this share, and of more hosts otherwise.
EQUAL_STEPS: Final = 0.1
#: The most repetitions of a case in a campaign: if its noise is unknown, and otherwise.
MOST_WITHOUT_NOISE, MOST_REPETITIONS = 3, 12
#: The fewest bad sessions of an intermittent host, in two periods or more.
INTERMITTENT_SESSIONS: Final = 3
# ----------------------------------------------------------------------
# Robust statistics: from the literature

#: Up to this share of the hosts may be bad, in any direction.
MOST_BAD: Final = 0.4
#: Values further from the centre than this number of deviations are moved to that distance (P. J. Huber, Robust
#: estimation of a location parameter, 1964).
HUBER: Final = 1.5
#: Median of the absolute value of a standard normal variable.
NORMAL_MEDIAN: Final = 0.6745
#: Hosts beyond this number of deviations are excluded from the spread of good hosts (F. R. Hampel, The breakdown
#: points of the mean combined with some rejection rules, 1985).
OUTLIER: Final = 3.0
#: The probability with which a loss at the sight is detected.
DETECTED: Final = 1.645

#: A step is clear if it is this number of standard errors from zero, which chance causes in 6 of 100,000.
CLEAR_STEP: Final = 4.0
#: The share of hosts with changes besides an update, and the deviation of their sizes in sizes of the update
#: (J. W. Tukey, A survey of sampling from contaminated distributions, 1960).
OWN_SHARE, OWN_CHANGE = 0.01, 3.0
#: The share of stable hosts whose series chance divides. A false change only discards older sessions.
CHANGE_TAIL: Final = 1e-3
#: The least noise that is assumed.
LEAST_NOISE: Final = 5e-4
#: Two groups of hosts are this number of deviations of their members apart.
GROUPS_APART: Final = 4.0

# ----------------------------------------------------------------------
# Observations on measured fleets

#: The spread of good hosts as a prior, with its degrees of freedom: about 1 % in memory rates
#: (bench/real_fleets.py), and up to 4 % for clocks (B. Acun et al., Variation among processors under Turbo Boost,
#: ICS 2016).
PRIOR_SPREAD, PRIOR_FREEDOM = 0.012, 4.0
#: The noise of a repetition if none was repeated, with its degrees of freedom.
PRIOR_NOISE: Final = 0.02
