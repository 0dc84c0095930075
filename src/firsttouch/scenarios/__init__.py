# SPDX-License-Identifier: Apache-2.0
"""Scenarios: policies, NUMA groups, the layout of instances, and what fits into memory."""
