# SPDX-License-Identifier: Apache-2.0
"""Measuring: the probe, the field's programs, kernel settings, effort profiles, cases, the base of the checks."""
