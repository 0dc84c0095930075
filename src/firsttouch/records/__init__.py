# SPDX-License-Identifier: Apache-2.0
"""Records: the schema, the store of many records, and files that appear by renaming.

In: measured values. Out: JSON lines, Parquet tables and stores, read back as records or tables.

- ``catalogue``: the checks with their metrics, and the roles of their parameters, from metrics.toml
- ``cases``: the identity of a measurement, and its name
- ``parts``: which part of a host each case shows
- ``samples_table``, ``groups``: the measurements of many hosts as one table
- ``drift``: the configurations of hosts, and how they differ and change
- ``schema``: :class:`~schema.Record`, appending to and reading JSON lines, and tables (``to_frame``)
- ``store``, ``tables``: two tables in a folder that many hosts append to (``append``, ``find``, ``tables``)
- ``append_log``: files that grow by lines, of which a killed writer may leave the last one torn
- ``atomic_files``, ``file_lock``: files that appear complete or not at all, and locks
"""
