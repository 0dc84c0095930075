# SPDX-License-Identifier: Apache-2.0
"""The papers' tables and figures from their published values, and where their prose and their tables disagree.

Lenis and Senar 2017 (article), Lenis 2018 (thesis), Langmead et al. 2018 (article and supplement).
"""
