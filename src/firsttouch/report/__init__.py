# SPDX-License-Identifier: Apache-2.0
"""Reports: figures, tables, pages and exports from records, verdicts and advice.

In: records (:mod:`firsttouch.records.schema`), hwloc's XML, verdicts and stored advice. Out: index.html for
readers, summary.md for a ticket, summary.json for programs, summary.prom for monitoring, and records.parquet.
``aspects`` derives results and charts from the records of a host; ``render`` and ``pages`` turn them into files.
Public: ``pages.build`` and the classes of ``model`` for a few hosts, and ``fleet`` for many hosts and for
comparisons. ``inputs`` reads files, stores and campaigns, and ``writing`` chooses and replaces the page, also for
the report of a campaign.
"""

#: With more hosts than this, the page of a report describes a fleet.
FEW_HOSTS = 4
