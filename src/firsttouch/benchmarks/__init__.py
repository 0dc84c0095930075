# SPDX-License-Identifier: Apache-2.0
"""Measuring: the probe and the field's programs, effort profiles, cases, and the ReFrame checks' base."""
