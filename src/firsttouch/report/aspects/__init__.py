# SPDX-License-Identifier: Apache-2.0
"""The aspects of a host, a module each.

Each has a function ``aspect(view)`` that returns the results and the charts of the host's records.
"""
