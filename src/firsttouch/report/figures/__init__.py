# SPDX-License-Identifier: Apache-2.0
"""The drawing library of reports, which knows nothing about records.

``drawing`` makes panels with lines, bars or heat maps of the values of aspects (:mod:`firsttouch.report.aspects`).
``svg`` writes the shapes and texts.
"""
