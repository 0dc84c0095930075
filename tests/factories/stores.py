# SPDX-License-Identifier: Apache-2.0
"""All records of stores and of JSON lines, as one table."""

import polars as pl

from firsttouch.records import schema, store


def all_rows(*paths):
    """Return the records of *paths*, each once."""
    parts = (part.records(schema.columns()) for part in store.tables(store.find(paths)))
    return pl.concat([schema.to_frame(()), *parts]).unique(maintain_order=True)
