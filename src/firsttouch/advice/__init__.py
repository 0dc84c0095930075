# SPDX-License-Identifier: Apache-2.0
"""Advice: which scenario to use, from a prior of physics and short trials within a budget."""
