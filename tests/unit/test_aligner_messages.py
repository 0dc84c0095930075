# SPDX-License-Identifier: Apache-2.0
"""Messages of an aligner's instances are joined; a summary that is not understood never is."""

import pytest

from firsttouch.errors import BadInput
from firsttouch.genomics import messages
from firsttouch.genomics.aligners import aligner, parse
from firsttouch.genomics.aligners import file_of as aligner_file
from firsttouch.genomics.messages import Messages

BOWTIE2 = """\
{0} reads; of these:
  {0} (100.00%) were unpaired; of these:
    {1} ({2}%) aligned 0 times
    {3} ({4}%) aligned exactly 1 time
    0 (0.00%) aligned >1 times
{4}% overall alignment rate
"""
FOUR, TWELVE = BOWTIE2.format(4, 1, "25.00", 3, "75.00"), BOWTIE2.format(12, 4, "33.33", 8, "66.67")
SIXTEEN = BOWTIE2.format(16, 5, "31.25", 11, "68.75")
NO_READS = "0 reads\n0.00% overall alignment rate\n"


@pytest.fixture
def joined(tmp_path):
    """Returns a function that joins the logs of instances: all messages, the summary, whether it is unclear."""

    def join(name, logs, *, failed=False):
        written = []
        result = Messages(aligner(name).summary, len(logs), written.append)
        files = {number: tmp_path / f"{number}.log" for number in range(len(logs))}
        for file, log in zip(files.values(), logs, strict=True):
            file.write_text(log)
        result.add(files, failed=failed)
        return "".join(written), result.summary, result.is_unclear

    return join


def test_instances_without_reads(joined):
    assert joined("bowtie2", [FOUR, NO_READS, TWELVE]) == ("", SIXTEEN, False)
    assert joined("bowtie2", [NO_READS, FOUR]) == ("", FOUR, False)
    assert joined("bowtie2", [NO_READS, NO_READS]) == ("", NO_READS, False)


def test_one_instance_prints_what_it_prints(joined):
    log = f"Warning: x\nWarning: x\n{FOUR}Time searching: 00:00:01\n"
    assert joined("bowtie2", [log]) == (log, FOUR, False)
    assert joined("bowtie2", ["an unknown version\n"]) == ("an unknown version\n", "", False)


def test_other_lines_are_as_from_one_instance(joined):
    """A line of several instances is there once, and as often as the instance that has it most often."""
    logs = [f"same\nsame\nonly 0\n{FOUR}end 0\n", f"same\nonly 1\nonly 1\n{TWELVE}end 1\n"]
    others = "same\nsame\nonly 0\nend 0\nonly 1\nonly 1\nend 1\n"
    assert joined("bowtie2", logs) == (others, SIXTEEN, False)


def test_lines_beyond_those_that_are_compared(joined, monkeypatch):
    monkeypatch.setattr(messages, "_MOST_COMPARED", 1)
    assert joined("bowtie2", [f"a\nb\n{FOUR}", f"a\nb\n{TWELVE}"]) == ("a\nb\nb\n", SIXTEEN, False)


#: The last line of bowtie's summary has a form for each kind of alignments.
REPORTED = {
    ("No alignments", "No alignments"): "No alignments",
    ("No alignments", "Reported 2 alignments"): "Reported 2 alignments",
    ("Reported 2 paired-end alignments", "No alignments"): "Reported 2 paired-end alignments",
    ("Reported 2 paired-end alignments", "Reported 3 alignments"): (
        "Reported 2 paired-end alignments and 3 singleton alignments"
    ),
    (
        "Reported 2 paired-end alignments and 3 singleton alignments",
        "Reported 20 paired-end alignments",
    ): "Reported 22 paired-end alignments and 3 singleton alignments",
}


@pytest.mark.parametrize("forms", REPORTED)
def test_forms_of_a_line(joined, forms):
    log = "# reads processed: 1\n# reads with at least one alignment: 1 (100.00%)\n"
    log += "# reads that failed to align: 0 (0.00%)\n"
    _, summary, is_unclear = joined("bowtie", [f"{log}{form}\n" for form in forms])
    assert not is_unclear
    assert summary.splitlines()[0] == "# reads processed: 2"
    assert summary.splitlines()[-1] == REPORTED[forms]


def test_a_line_that_only_some_versions_print(joined):
    log = "# reads processed: {0}\n# reads with at least one reported alignment: {0} (100.00%)\n"
    log += "# reads that failed to align: 0 (0.00%)\nReported {0} alignments\n"
    assert joined("bowtie", [log.format(5), log.format(995)])[1] == log.format(1000)


#: Logs of an instance whose summary must not be joined.
UNCLEAR = {
    "killed before its summary": "same\n",
    "killed within its summary": f"same\n{TWELVE[:60]}",
    "a line of another version": f"same\n{TWELVE.replace('    0 (', '    7 of 9 (')}",
    "other names": f"same\n{TWELVE.replace('reads; of these', 'fragments; of these')}",
    "counts that do not give the percentages": f"same\n{TWELVE.replace('33.33', '43.33')}",
    "percentages with a decimal comma": f"same\n{TWELVE.replace('.', ',')}",
    "two summaries": f"same\n{TWELVE}other\n{FOUR}",
}


@pytest.mark.parametrize("case", UNCLEAR)
def test_summaries_that_are_not_understood_are_not_printed(joined, case):
    logs = [f"same\n{FOUR}", UNCLEAR[case]]
    assert joined("bowtie2", logs) == ("same\n", "", True)
    assert joined("bowtie2", logs[::-1]) == ("same\n", "", True)


def test_layouts_that_differ_are_not_joined(joined):
    new = (
        "HISAT2 summary stats:\n\tTotal reads: 1\n\t\tAligned 0 time: 0 (0.00%)\n\t\tAligned 1 time: 1 (100.00%)\n"
    )
    new += "\t\tAligned >1 times: 0 (0.00%)\n\tOverall alignment rate: 100.00%\n"
    assert joined("hisat2", [new, new])[1:] == (new.replace(" 1 (", " 2 (").replace("reads: 1", "reads: 2"), False)
    assert joined("hisat2", [new, FOUR]) == ("", "", True)


def test_the_messages_of_a_run_that_fails_have_the_instance(joined):
    written, summary, _ = joined("bowtie2", [FOUR, "Error: disk\n"], failed=True)
    assert "instance 0: 4 reads; of these:\n" in written
    assert written.endswith("instance 1: Error: disk\n")
    assert summary == ""
    assert joined("bowtie2", [f"Error: disk\n{FOUR}"], failed=True)[0] == f"Error: disk\n{FOUR}"


#: Faults of the table [summary]: its keys, and the message.
FAULTS = {
    "layouts = ['{reads} and {reads%all}']": "summary.layouts: '{reads} and {reads%all}': all is not a count of",
    "layouts = ['{Reads}']": "summary.layouts: '{Reads}': {Reads} is not a count or a percentage",
    "layouts = ['{reads} {2*reads}']": "{2*reads} is not a count, and no percentage",
    "layouts = ['{reads%2reads}']": "'2reads' is not a sum of counts",
    "layouts = ['{reads}']\nlargest = ['second']": "summary.largest: second is not a count of any line",
    "apart = ['(']": "summary.apart",
    "always = 1": "summary.always",
}


@pytest.mark.parametrize("text", FAULTS)
def test_a_table_that_is_wrong(text):
    minimal = aligner_file("snap").read_text().partition("[summary]")[0]
    parse("x", minimal, "x.toml")
    with pytest.raises(BadInput) as caught:
        parse("x", f"{minimal}[summary]\n{text}\n", "x.toml")
    assert FAULTS[text] in str(caught.value)
    assert str(caught.value).startswith("x.toml:")


def test_a_summary_described_by_another_file():
    assert 'of = "bowtie2"' in aligner_file("hisat").read_text()
    assert aligner("hisat").summary == aligner("bowtie2").summary
