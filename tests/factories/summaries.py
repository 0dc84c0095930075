# SPDX-License-Identifier: Apache-2.0
"""Commands of aligners that print a summary of their alignments, and reads that fall into each of its lines."""

import random
import shlex

from factories import genomes

#: By a name: the aligner, and its options. {reads} are the reads, as comma-separated lanes of one or two mates.
OPTIONS = {
    "bowtie": ("bowtie", "-S -p 2 -X 1000 -x {index} {reads}"),
    "bowtie2": ("bowtie2", "-p 2 --reorder -x {index} {reads}"),
    "bowtie2-local": ("bowtie2", "-p 2 --local --no-mixed --no-discordant --very-fast -k 2 -x {index} {reads}"),
    "hisat2": ("hisat2", "-p 2 --no-spliced-alignment --no-temp-splicesite -x {index} {reads}"),
    "hisat2-new": ("hisat2", "-p 2 --new-summary --no-spliced-alignment --no-temp-splicesite -x {index} {reads}"),
}
#: Records of each lane: unequal parts, and a lane that is smaller than a part.
LANES = (700, 290, 10)


def lanes(folder):
    """Write three lanes of pairs; return the reference, the files of mate 1 and the files of mate 2.

    Half of the genome is repeats. Some mates are far apart, others have random bases, as both have in some pairs.
    """
    reference, (first, second) = genomes.mixed(folder, sum(LANES) // 2)
    rng = random.Random(4)  # noqa: S311
    bases = [record.split(b"\n")[1] for record in second]
    for number in range(0, len(first), 7):
        length = len(bases[number])
        noise = ["".join(rng.choices("ACGT", k=length)).encode() for _ in range(2)]
        kind = rng.randrange(3)
        mate = rng.choice([b for b in bases if len(b) == length]) if kind == 0 else noise[0]
        second[number] = second[number].replace(bases[number], mate)
        if kind == 2:
            read = first[number].split(b"\n")[1]
            first[number] = first[number].replace(read, "".join(rng.choices("ACGT", k=len(read))).encode())
    files = []
    for mate, records in enumerate((first, second), 1):
        files.append([folder / f"lane{lane}_{mate}.fq" for lane in range(len(LANES))])
        at = 0
        for file, count in zip(files[-1], LANES, strict=True):
            file.write_bytes(b"".join(records[at : at + count]))
            at += count
    return reference, *files


def command(name, index, *mates):
    """Return the words of the command *name* for lanes of one mate or of two."""
    reads = [",".join(map(str, files)) for files in mates]
    aligner, options = OPTIONS[name]
    given = (
        f"-1 {reads[0]} -2 {reads[1]}" if len(mates) == 2 else f"{'' if aligner == 'bowtie' else '-U '}{reads[0]}"
    )
    return [aligner, *shlex.split(options.format(index=index, reads=given))]
