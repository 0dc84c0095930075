# SPDX-License-Identifier: Apache-2.0
"""The verdict: pass, fail, suspect or invalid per host and metric, with the evidence."""
