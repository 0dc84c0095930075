# SPDX-License-Identifier: Apache-2.0
"""What the papers call aligners and systems, and their tables: for headings."""

from __future__ import annotations

#: Aligner -> its name in the tables of the article and the thesis, the letter of its tables.
ALIGNERS = {"bowtie2": ("BOWTIE2", "A"), "bwa-mem": ("BWA-MEM", "B"), "gem": ("GEM", "C"), "snap": ("SNAP", "D")}
SYSTEMS = {"amd-opteron": "AMD", "intel-xeon": "INTEL"}
DATASETS = ("NA12878", "GCAT")
POLICIES = ("original", "localalloc", "interleave")
#: The article's table -> the thesis's.
THESIS = {"A1": "A3", "A2": "A4", "B1": "B5", "B2": "B6", "C1": "C7", "C2": "C8", "D1": "D9", "D2": "D10"}
#: Dataset -> what it is called in the captions of the figures.
CAPTIONS = {"GCAT": "GCAT synthetic input", "NA12878": "NA12878 real input"}
#: System -> its name and threads in the head of tables 2 to 4.
MACHINES = {
    "skylake": "Skylake (96 threads)",
    "broadwell": "Broadwell (112 threads)",
    "knl": "KNL (272 threads)",
}
READS = ("paired", "unpaired")


def printed(value: float | None) -> str:
    """Return a number as the tables print it: with two decimals, or all that it has; nothing for None."""
    if value is None:
        return ""
    text = f"{value:.6f}".rstrip("0")
    return text if len(text.partition(".")[2]) > 2 else f"{value:.2f}"
