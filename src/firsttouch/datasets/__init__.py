# SPDX-License-Identifier: Apache-2.0
"""Datasets: references and reads, described by one TOML file each, fetched, checked and kept in a store.

>>> local = get("lambda")                # doctest: +SKIP
>>> local.reference, local.reads         # doctest: +SKIP
"""

from firsttouch.datasets.get import LocalDataset, get, state, verify
from firsttouch.datasets.manifest import DataFile, Dataset, available, load

__all__ = ["DataFile", "Dataset", "LocalDataset", "available", "get", "load", "state", "verify"]
