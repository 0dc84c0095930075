# SPDX-License-Identifier: Apache-2.0
"""Systems as data: one validated YAML file each, with facts, partitions and references."""

from firsttouch.systems.facts import Facts
from firsttouch.systems.load import available, load
from firsttouch.systems.model import Partition, System, mismatch
from firsttouch.systems.references import Reference

__all__ = ["Facts", "Partition", "Reference", "System", "available", "load", "mismatch"]
