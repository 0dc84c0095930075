# SPDX-License-Identifier: Apache-2.0
"""All records of stores and of JSON lines, as one table; and logged verdicts."""

import json
import time

import polars as pl

from firsttouch.records import schema, store


def all_rows(*paths):
    """Return the records of *paths*, each once."""
    parts = (part.records(schema.columns()) for part in store.tables(store.find(paths)))
    return pl.concat([schema.to_frame(()), *parts]).unique(maintain_order=True)


def log_verdict(out, host, word, age=60.0, system="s", *, reason="", source="c", now=None):
    """Log a verdict of a host, *age* seconds old, in the folder of results *out*."""
    log = out / "verdicts" / "log" / f"{host}.jsonl"
    log.parent.mkdir(parents=True, exist_ok=True)
    line = {"time": (now or time.time()) - age, "host": host, "system": system, "verdict": word}
    with log.open("a") as file:
        file.write(json.dumps({**line, "reason": reason, "source": source}) + "\n")
