# SPDX-License-Identifier: Apache-2.0
"""The figures of a report, one module per kind.

``figures(view)`` of a module takes the records of a host (:class:`firsttouch.report.model.HostView`) and returns
its figures, or the reason why there are none. ``drawing`` has what they share: axes, bars, lines and heat maps.
``svg`` writes the shapes and texts.
"""
