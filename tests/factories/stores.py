# SPDX-License-Identifier: Apache-2.0
"""All records of stores and of JSON lines, as one table."""

import polars as pl

from firsttouch.records import schema, store


def all_rows(*paths):
    """Return the records of *paths*, each once."""
    parts = store.batches(store.find(paths), list(schema.columns()))
    return pl.concat([schema.to_frame(()), *parts]).unique(maintain_order=True)
