# SPDX-License-Identifier: Apache-2.0
"""Measures the four NUMA performance aspects of this host, directly or through ReFrame.

In: the topology of the host, an effort (efforts.toml) and, for ReFrame, the systems. Out: records.

Public: :func:`measure.measure` (one aspect of this host), :mod:`probe` (the native probe), :class:`cases.Cases`
(the measurements of a host), :mod:`profiles` (efforts), :class:`checks.FirstTouchCheck` (base class of the ReFrame
checks), :func:`reframe_run.run`, :func:`reframe_config.site_configuration`, :func:`kernel_settings.records`.
"""
