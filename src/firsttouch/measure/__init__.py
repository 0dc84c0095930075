# SPDX-License-Identifier: Apache-2.0
"""Measuring with the field's own programs, each in a file of its own: how to start it, how to read its output."""
