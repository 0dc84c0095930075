# SPDX-License-Identifier: Apache-2.0
"""The placement scenarios of a host.

In: a topology, policies.json and the memory that an instance needs. Out: a plan of scenarios, each with its
placements. Public: ``placement`` (``plan``, ``Scenario``, ``Placement``), ``policies``, ``memory_fit.Need`` and
``evidence``, which judges whether pages lie where a placement asks. ``layout`` divides the PUs for ``placement``.
"""
