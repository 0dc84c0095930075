# SPDX-License-Identifier: Apache-2.0
"""What ``firsttouch run -- ALIGNER`` prints on standard error: what the real aligner prints for the whole run."""

import re
import shutil
import subprocess

import pytest

from factories import genomes, summaries
from firsttouch.cli import run_command
from firsttouch.scenarios.placement import parse_name


@pytest.fixture(scope="module")
def lanes(tmp_path_factory):
    """Returns the reference, and the files of each mate."""
    return summaries.lanes(tmp_path_factory.mktemp("lanes"))


@pytest.fixture(scope="module", params=[(name, mates) for name in summaries.OPTIONS for mates in (1, 2)], ids=str)
def command(request, lanes, tmp_path_factory):
    """Returns a function that makes a command for the lanes or other files, and its standard error by hand."""
    name, mates = request.param
    index = genomes.built(genomes.installed(summaries.OPTIONS[name][0]), lanes[0], tmp_path_factory)

    def make(*files):
        words = summaries.command(name, index, *(files or lanes[1:])[:mates])
        return words, subprocess.run(words, capture_output=True, text=True, check=True).stderr

    return make


@pytest.fixture
def placed(run_here, monkeypatch):
    """Returns a function that runs a command in N instances, and returns the lines of standard error."""

    def run(instances, words, *options, status=0):
        def scenario(request, *_):
            name = parse_name(request.scenario)
            return genomes.scenario(name.instances if name else instances)

        monkeypatch.setattr(run_command, "_scenario", scenario)
        done = run_here("run", "--share-host", *options, "--", *words)
        assert done.returncode == status, done
        return done.stderr

    return run


@pytest.mark.parametrize("instances", [1, 3])
def test_the_summary_is_that_of_the_whole_run(placed, command, instances):
    words, expected = command()
    assert re.search("align", expected, re.IGNORECASE)
    *lines, last = placed(instances, words, "--progress=text").splitlines(keepends=True)
    assert f" under {instances}x1-bound: " in last
    assert "".join(lines) == expected


@pytest.mark.parametrize("is_known", [True, False])
def test_instances_without_reads(placed, command, lanes, monkeypatch, is_known):
    """They do not run where the size of the reads is known, and end without reads where it is not."""
    if not is_known:
        monkeypatch.setattr(run_command, "_text_bytes", lambda files, most: most)
    files = [[lane.with_name(f"first-of-{lane.name}")] for lane, *_ in lanes[1:]]
    for (file,), (lane, *_) in zip(files, lanes[1:], strict=True):
        file.write_bytes(genomes.records(lane)[1])
    words, expected = command(*files)
    lines = placed(3, words).splitlines(keepends=True)
    about = lines.pop(0 if is_known else -1)
    assert ("1 of 3 instances run" if is_known else "2 of 3 instances got no reads") in about
    assert f" under {1 if is_known else 3}x1-bound: " in lines.pop()
    assert "".join(lines) == expected


#: Aligners that go on after a line of another version, and after one that is cut.
@pytest.mark.parametrize("script", ["sed 's/of these/of them/'", "sed 's/aligned 0 times/did not align/'"])
def test_a_summary_that_is_not_known_is_not_printed(placed, lanes, stand_in, tmp_path_factory, script):
    index = genomes.built(genomes.installed("bowtie2"), lanes[0], tmp_path_factory)
    real = shutil.which("bowtie2-align-s")
    stand_in("bowtie2-align-s", f'{{ {real} "$@" 2>&1 >&3 | {script} >&2; }} 3>&1')
    stand_in("bowtie2", f'exec {shutil.which("bowtie2")} "$@"')
    lines = placed(2, summaries.command("bowtie2", index, lanes[1])).splitlines()
    assert len(lines) == 2
    assert lines[0].startswith(
        "the summary of bowtie2 is left out, with all messages that differ between its inst"
    )
    assert " under 2x1-bound: 1,000 reads" in lines[1]


@pytest.mark.parametrize("layout", ["hisat2", "hisat2-new"])
def test_a_file_for_the_summary(placed, lanes, tmp_path, tmp_path_factory, layout):
    index = genomes.built(genomes.installed("hisat2"), lanes[0], tmp_path_factory)
    by_hand, file = tmp_path / "hand.txt", tmp_path / "placed.txt"
    words = summaries.command(layout, index, *lanes[1:])
    subprocess.run([*words, "--summary-file", by_hand], capture_output=True, check=True)
    expected = by_hand.read_text()
    for instances in (1, 2):
        assert expected in placed(instances, [*words, "--summary-file", file])
        assert file.read_text() == expected
        file.unlink()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bwa-mem", "bwa mem -t 2 -K 20000 -R @RG\\tID:a {index}"),
        ("minimap2", "minimap2 -ax sr -t 2 -K 20000 {index}.mmi"),
    ],
)
def test_the_command_is_printed_once_as_it_was_typed(placed, lanes, tmp_path_factory, name, text):
    index = genomes.built(genomes.installed(name), lanes[0], tmp_path_factory)
    words = [*text.format(index=index).split(" "), str(lanes[1][0])]
    by_hand = subprocess.run(words, capture_output=True, text=True, check=True).stderr
    expected, printed = ([x for x in err.splitlines() if "CMD" in x] for err in (by_hand, placed(2, words)))
    assert printed == expected != []


def alignments(sam):
    return [line for line in sam.splitlines() if not line.startswith("@")]


#: Commands for pairs whose names differ, and what the plain program does with them.
PAIRS = {
    "bowtie": ("bowtie -S -p 2 --reorder -x INDEX -1 R1 -2 R2", True),
    "bowtie2": ("bowtie2 -p 2 --reorder -x INDEX -1 R1 -2 R2", True),
    "hisat2": ("hisat2 -p 2 --no-spliced-alignment --no-temp-splicesite --reorder -x INDEX -1 R1 -2 R2", True),
    "minimap2": ("minimap2 -ax sr -t 2 INDEX.mmi R1 R2", True),
    "bwa-mem": ("bwa mem -t 2 -K 20000 INDEX R1 R2", False),
    "snap": ("snap-aligner paired INDEX R1 R2 -t 2 -b- -o -sam -", False),
}


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_whose_names_differ(placed, lanes, tmp_path, tmp_path_factory, name):
    """fastq-dump ends them with .1 and .2."""
    index = genomes.built(genomes.installed(name), lanes[0], tmp_path_factory)
    files = []
    for mate, (lane, *_) in enumerate(lanes[1:], 1):
        files.append(tmp_path / f"{mate}.fq")
        heads = (record.split(b"\n", 1) for record in genomes.records(lane))
        files[-1].write_bytes(b"".join(b"%s.%d\n%s" % (head.split(b"/")[0], mate, rest) for head, rest in heads))
    text, aligns = PAIRS[name]
    words = [
        {"R1": str(files[0]), "R2": str(files[1])}.get(w, w.replace("INDEX", str(index))) for w in text.split()
    ]
    by_hand = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (by_hand.returncode == 0) == aligns
    out = tmp_path / "o.sam"
    written = placed(2, words, "-o", out, status=0 if aligns else 2)
    if aligns:
        assert alignments(out.read_text()) == alignments(by_hand.stdout)
        assert "got no reads" not in written
    else:
        assert "are no pair" in written
