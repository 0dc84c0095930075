# SPDX-License-Identifier: Apache-2.0
"""The verdict: pass, undecided, suspect, invalid or fail per host, part and metric, with the evidence.

In: measurements of hosts and the references of a system. Out: the verdict of each host. In the order of the data:

- ``levels``: the losses of parts by session, and the one change detector
- ``updates``: steps that many hosts share, which are taken off
- ``questions``, ``part_judge``: parts compared with siblings, themselves and equal parts; groups of hosts
- ``judging``: :func:`~judging.judge` and :func:`~judging.judged`; references, exact values, what to measure again
- ``event_limits``: counts of events
- ``findings``: the result, a row per host and metric that pages and exports read
- ``causes``: the causes of bad verdicts by causes.toml
- ``verdict``: findings and verdicts of hosts
- ``history``, ``comparison``, ``baseline``: changes of parts, two campaigns, and what is learnt from a fleet
- ``constants``: every constant with its source
"""
