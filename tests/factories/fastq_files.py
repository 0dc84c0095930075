# SPDX-License-Identifier: Apache-2.0
"""FASTQ made by hypothesis, as lists of four lines, and what a feeder writes of it into real pipes."""

import contextlib
import gzip
import os
import threading
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

BASES = st.text("ACGTN", max_size=300)
NAMES = st.text("abz019:.#@+/", min_size=1, max_size=8).filter(
    lambda n: not n.endswith(("/1", "/2")) and not n.startswith("@")
)
GOOD = [["@a", "ACGT", "+", "IIII"], ["@b", "AC", "+", "II"], ["@c", "A", "+", "@"]]


def common(examples):
    """Files are made anew for each example, so that one folder for all of a test does."""
    return settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


@st.composite
def fastq(draw, mates=1):
    """Records of each mate (a list for each), in step; qualities may begin with @ or +."""
    records = [[] for _ in range(mates)]
    for name in draw(st.lists(NAMES, min_size=1, max_size=12)):
        suffix = draw(st.booleans())
        for mate in range(mates):
            bases = draw(BASES)
            first = draw(st.sampled_from("@+I!"))
            comment = draw(st.sampled_from(("", f" {mate + 1}:N:0:1", "\tc  d", " ")))
            full = f"@{name}{f'/{mate + 1}' if suffix and mates == 2 else ''}{comment}"
            plus = "+" + draw(st.sampled_from(("", name)))
            records[mate].append([full, bases, plus, (first + "@" * len(bases))[: len(bases)]])
    return records


def text(records, newline="\n"):
    return "".join(line + newline for record in records for line in record).encode()


@st.composite
def layout(draw):
    """How a file is written: a function of its records that returns its bytes, before gzip."""
    newline = draw(st.sampled_from(("\n", "\r\n")))
    ended, blank = draw(st.booleans()), draw(st.sampled_from(("", "\n", "\n\n\n\n", "\r\n\n", "\n" * 9)))

    def written(records):
        data = text(records, newline)
        return data + blank.encode() if ended else data[: -len(newline)]

    return written


def packed(data, members=1):
    size = max(len(data) // members, 1)
    return b"".join(gzip.compress(data[i : i + size], 1, mtime=0) for i in range(0, max(len(data), 1), size))


def write(file, data):
    file.write_bytes(data)
    return file


@contextlib.contextmanager
def nothing_stays():
    """No thread, descriptor or child process is left of what was done meanwhile."""

    def held():
        task = Path(f"/proc/self/task/{os.getpid()}")
        threads = {t for t in threading.enumerate() if t.name.startswith(("feeder", "reads"))}
        return len(list(Path("/proc/self/fd").iterdir())), threads, (task / "children").read_text()

    before = held()
    yield
    assert held() == before


def fed(feeder, instances, mates, *, wanted=None, interleaved=False):
    """Return what each instance reads, for each mate (or in all, of mates in turn), once everything was fed."""
    mates = 1 if interleaved else mates
    texts = [[b""] * mates for _ in range(instances)]
    sinks, readers = [], []

    def read(out_of, instance, mate):
        with os.fdopen(out_of, "rb") as stream:
            texts[instance][mate] = stream.read()

    for instance in range(instances):
        sinks.append([])
        for mate in range(mates):
            if wanted is not None and mate not in wanted:
                sinks[-1].append(None)
                continue
            out_of, into = os.pipe()
            sinks[-1].append(into)
            readers.append(threading.Thread(target=read, args=(out_of, instance, mate)))
    for reader in readers:
        reader.start()
    feeder.start(sinks, interleaved=interleaved)
    try:
        feeder.join()
    finally:
        for reader in readers:
            reader.join()
    return texts
