# SPDX-License-Identifier: Apache-2.0
"""Tables and figures of three papers from their published values, and where prose and tables disagree.

The papers are Lenis and Senar 2017 (article), Lenis 2018 (thesis), and Langmead et al. 2018 (article and
supplement). The input are their tables in studies/published, the studies that describe these, and the claims in
claims/. `make paper` runs the package; only the repository has it. Public is ``page.build``.
"""
