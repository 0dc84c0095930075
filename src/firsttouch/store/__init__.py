# SPDX-License-Identifier: Apache-2.0
"""The store: records in Parquet files that many hosts append to a folder at once, without a lock or a server.

A host writes each of its files beside its place, forces it to the disk and renames it: whatever is killed when, a
file is there whole or not at all, and no other file is touched. :func:`scan` reads all of them as one table,
lazily; :func:`compact` makes one file of many small ones.
"""

from firsttouch.store.compaction import Compacted, compact
from firsttouch.store.files import append
from firsttouch.store.reading import Sources, batches, find, scan

__all__ = ["Compacted", "Sources", "append", "batches", "compact", "find", "scan"]
