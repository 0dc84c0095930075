# SPDX-License-Identifier: Apache-2.0
"""A user's working folder with the reads of two samples, in which pipelines run."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from factories.processes import captured, write_program
from firsttouch import paths

#: Pairs of each sample.
PAIRS = 5000
#: A real bwa that records its PUs. The file *broken* has the number of its instances for sample b that succeed.
BWA = """\
if [ "$1" = mem ]; then
    grep Cpus_allowed_list /proc/self/status >>'{folder}/affinity'
    case "$*" in *SM:b*)
        echo >>'{folder}/starts'
        if [ -e '{folder}/broken' ] && [ "$(wc -l <'{folder}/starts')" -gt "$(cat '{folder}/broken')" ]; then
            echo '[E::bwa] out of memory' >&2
            exit 1
        fi ;;
    esac
fi
exec {bwa} "$@"
"""


@dataclass(frozen=True)
class Site:
    """A user's working folder with genome.fa and the reads of the samples a and b, and the programs on PATH."""

    folder: Path
    programs: Path

    @staticmethod
    def create(folder: Path, reads: Sequence[Path], reference: Path) -> Site:
        """Create a site below *folder* with a reference, parts of its *reads*, and a link to the checkout."""
        site = Site(folder / "site", folder / "programs")
        (site.folder / "reads").mkdir(parents=True)
        site.programs.mkdir()
        (site.folder / "firsttouch").symlink_to(paths.ROOT)
        shutil.copy(reference, site.folder / "genome.fa")
        for mate, file in enumerate(reads, start=1):
            lines = file.read_bytes().splitlines(keepends=True)
            for number, sample in enumerate("ab"):
                part = b"".join(lines[4 * PAIRS * number : 4 * PAIRS * (number + 1)])
                (site.folder / "reads" / f"{sample}_{mate}.fastq.gz").write_bytes(gzip.compress(part, 1))
        write_program(site.programs / "bwa", BWA.format(folder=site.programs, bwa=shutil.which("bwa")))
        return site

    def break_down(self, after: int) -> None:
        """Let the aligner fail for sample b after the start of *after* instances."""
        (self.programs / "broken").write_text(str(after))

    def repair(self) -> None:
        """Let the aligner work again."""
        (self.programs / "broken").unlink()

    def affinities(self) -> set[str]:
        """Return the lists of PUs on which instances ran since the last call."""
        lines = (self.programs / "affinity").read_text().splitlines()
        (self.programs / "affinity").unlink()
        return {line.split()[1] for line in lines}

    def run(self, *argv: object, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a program in the folder."""
        path = f"{self.programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        return captured(
            [str(word) for word in argv],
            cwd=self.folder,
            env={**os.environ, "PATH": path, "FIRSTTOUCH_ADVICE": str(self.folder / "advice"), **environment},
            stdin=subprocess.DEVNULL,
            timeout=240,
        )
