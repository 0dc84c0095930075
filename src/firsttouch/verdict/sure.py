# SPDX-License-Identifier: Apache-2.0
"""How sure a verdict is: a sequential test of passes that no single noisy pass decides.

Two hypotheses are weighed (A. Wald, Sequential tests of statistical hypotheses, 1945): that a host loses nothing
of a metric, and that it loses twice the *limit*. Each pass adds its log-likelihood ratio, for a normal error of
the size that the fleet's passes have. What one pass can add is bounded (P. J. Huber, A robust version of the
probability ratio test, 1965): a fail takes three passes at least, a pass one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

#: A good metric fails in no more than this share of validations; a host may have thousands of metrics.
FALSE_ALARM = 1e-7
#: A loss of twice the limit is overlooked in no more than this share.
OVERLOOKED = 2e-3
#: Passes that a fail takes at least.
FEWEST_TO_FAIL = 3
#: A smaller error than this share of the limit decides nothing more, and no error is known that well.
_LEAST_ERROR = 0.05

FAIL_AT = math.log((1 - OVERLOOKED) / FALSE_ALARM)
PASS_AT = -math.log((1 - FALSE_ALARM) / OVERLOOKED)
_MOST = FAIL_AT / FEWEST_TO_FAIL * (1 + 1e-9)


def weight(losses: Sequence[float], limit: float, error: float) -> float:
    """Return the evidence of some passes: at FAIL_AT or above it is a fail, at PASS_AT or below a pass.

    *losses* are fractions of what is expected (above 0: worse); the *error* is the relative standard deviation
    of one pass.
    """
    factor = 2 * limit / max(error, _LEAST_ERROR * limit) ** 2
    return sum(min(max(factor * (loss - limit), PASS_AT), _MOST) for loss in losses)


def certainty(evidence: float) -> float:
    """Return the probability of the likelier hypothesis, where both were as likely before."""
    return 1 / (1 + math.exp(-min(abs(evidence), 700)))


def passes_needed(limit: float, error: float) -> int:
    """Return how many passes a good metric takes on average until it is sure (Wald's approximation)."""
    gain = 2 * (limit / max(error, _LEAST_ERROR * limit)) ** 2
    return max(1, math.ceil(-PASS_AT / gain))
