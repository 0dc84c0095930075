# SPDX-License-Identifier: Apache-2.0
"""Stored messages of real aligners for all reads and for three parts of them: the parts add up to the whole."""

import re

import pytest

from firsttouch.genomics.aligners import aligner
from firsttouch.genomics.messages import Messages

COUNTS = ["bowtie_single", "bowtie_paired", "bowtie2_single", "bowtie2_paired"]
COUNTS += [f"hisat2_{layout}{mates}" for layout in ("", "new_") for mates in ("single", "paired")]
#: Their summaries have times, which do not add up to those of another run.
TIMED = {"bwa_mem": "bwa-mem", "minimap2": "minimap2", "snap_single": "snap", "snap_paired": "snap"}


@pytest.fixture
def messages_of(golden, tmp_path):
    """Returns a function that reads a stored file: the whole, its parts, and what the parts are when joined."""

    def read(name):
        sections = re.split(r"^==> \w+ <==\n", golden(f"summary_{name}.txt"), flags=re.MULTILINE)
        whole, *parts = (section.rstrip("\n") + "\n" for section in sections[1:])
        files = {}
        for number, part in enumerate(parts):
            files[number] = tmp_path / f"{number}.log"
            files[number].write_text(part)
        written = []
        joined = Messages(aligner(TIMED.get(name, name.split("_")[0])).summary, len(files), written.append)
        joined.add(files, failed=False)
        assert not joined.is_unclear
        return whole, parts, "".join(written), joined.summary

    return read


@pytest.mark.parametrize("name", COUNTS)
def test_parts_add_up_to_the_summary_of_the_whole(messages_of, name):
    whole, parts, others, summary = messages_of(name)
    assert len(parts) == 3
    assert (others, summary) == ("", whole)


@pytest.mark.parametrize("name", ["bwa_mem", "minimap2"])
def test_times_of_instances_that_run_together(messages_of, name):
    whole, parts, others, summary = messages_of(name)
    numbers = [[float(n) for n in re.findall(r"\d+\.\d+", part.splitlines()[-1])] for part in parts]
    real, cpu, *memory = zip(*numbers, strict=True)
    expected = [max(real), sum(cpu), *map(sum, memory)]
    assert [float(n) for n in re.findall(r"\d+\.\d+", summary)] == pytest.approx(expected)
    shape = re.compile(r"\d+\.\d+")
    assert shape.sub("N", summary) == shape.sub("N", whole.splitlines(keepends=True)[-1])
    # Versions are the same in all.
    assert others.count("Version: ") == 1
    assert "Real time" not in others
    assert "instance" not in others


def test_the_table_of_snap(messages_of):
    whole, _, others, summary = messages_of("snap_single")
    header, row = summary.splitlines()
    assert header == whole.splitlines()[-2]
    expected = whole.splitlines()[-1]
    # All but the rate, which is that of three programs, and the padding behind it.
    assert row[: header.index("Reads/s")] == expected[: header.index("Reads/s")]
    assert row[header.index("Reads/s") :].split() == ["95,347", "0"]
    assert row.rindex("0") == header.index("Time in")
    assert others == "".join(whole.splitlines(keepends=True)[:-2])


def test_a_percentage_without_its_count_does_not_add_up(messages_of):
    _, _, others, summary = messages_of("snap_paired")
    assert summary == ""
    tables = re.findall(r"^(instance \d+: |)([\d,]+) .*%", others, re.MULTILINE)
    assert tables == [("instance 0: ", "3,400"), ("instance 1: ", "2,574"), ("instance 2: ", "26")]
    assert others.count("Welcome to SNAP") == 1
