# SPDX-License-Identifier: Apache-2.0
"""The guideline: which scenario to use, from a prior of physics and short trials within a budget.

Nothing here knows an aligner, a system or a published time: candidates differ by instances, threads, and where
their data lie; everything else is learnt from the trials of the very cell that is asked about.
"""
