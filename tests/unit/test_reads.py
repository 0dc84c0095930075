# SPDX-License-Identifier: Apache-2.0
"""``firsttouch data reads``: FASTQ files are checked, and what they hold is counted."""

import json

from factories.fastq_files import GOOD, packed, text, write


def test_the_command_checks(tmp_path, run_cli):
    first = write(tmp_path / "1.fq", text(GOOD, "\r\n"))
    second = write(tmp_path / "2.fq", packed(text(GOOD)[:-1]))
    status, out, _ = run_cli("data", "reads", first, second, "--batch-bases", 10, "--json")
    assert status == 0
    assert json.loads(out) == {
        "files": [
            {"file": str(first), "layout": ["CR LF"]},
            {"file": str(second), "layout": ["gzip", "no newline at the end"]},
        ],
        "paired": True,
        "interleaved": False,
        "records": 3,
        "bases": 14,
        "batches": 2,
        "as_is": False,
    }
    status, out, _ = run_cli("data", "reads", first, "--batch-bases", 10)
    assert status == 0
    assert out.splitlines() == ["reads    3", "bases    7", "batches  1", f"{first}: CR LF"]
    status, out, err = run_cli("data", "reads", write(tmp_path / "bad.fq", b">s\nACGT\n"))
    assert (status, out) == (2, "")
    assert "bad.fq:1: record 1 begins without @: this is FASTA" in err
