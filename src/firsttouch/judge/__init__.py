# SPDX-License-Identifier: Apache-2.0
"""The verdict: pass, undecided, suspect, invalid or fail per host and metric, with the evidence.

In: records of hosts and the references of a system. Out: the verdict of each host.

- ``judging``: :func:`~judging.judge` and :func:`~judging.judged`, and what to measure again
- ``measuring``: what campaigns and the check of a host ask of the judge, as they judge nothing themselves
- ``findings``: their result, one table of values, expectations and verdicts, which pages and exports read
- ``verdict``, ``verdict_file``, ``verdict_log``: findings and verdicts of hosts, the last and all verdicts
- ``baseline``: references learnt from a fleet
- ``fleet_level``: the level that good hosts reach, outliers, and divided fleets
- ``comparison``, ``gains``: what changed between two campaigns; the gains of scenarios over the default run
- ``samples_table``: the measurements of many hosts as one table
- ``sprt``, ``causes``: the sequential test, and the causes of bad verdicts
"""
