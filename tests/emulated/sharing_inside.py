# SPDX-License-Identifier: Apache-2.0
"""Runs `firsttouch run` several times at once inside the guest: `sharing_inside.py INDEX READS`.

The runs are forked from this process, because each start of Python takes seconds. They claim their PUs and wait
for reads. Prints the PUs of the claims after 2, 4 and 8 starts, and after six kills and a further start, with what
the runs wrote.
"""

import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from firsttouch import cli
from firsttouch.cli import run, run_command
from firsttouch.host.cpusets import parse_list
from firsttouch.tools import no_idle_threads

with no_idle_threads():
    from firsttouch.genomics import read_stream

LOADED = (run, run_command, read_stream)


class Runs:
    """Runs of the command with an index *prefix*; by process number their input and their folder."""

    def __init__(self, prefix: str, folder: Path) -> None:
        self.prefix, self.folder = prefix, folder
        self.inputs: dict[int, int] = {}

    def start(self, count: int) -> None:
        """Start *count* runs at once, and wait until all that run have claimed their PUs."""
        for _ in range(count):
            reading, writing = os.pipe()
            if pid := os.fork():
                os.close(reading)
                self.inputs[pid] = writing
            else:
                os.close(writing)
                self._become(reading)
        while len(self.claims()) < len(self.inputs):
            time.sleep(0.1)

    def _become(self, reading: int) -> None:
        os.dup2(reading, 0)
        for number in self.inputs.values():
            os.close(number)
        os.dup2(os.open(self.folder / f"{os.getpid()}.txt", os.O_WRONLY | os.O_CREAT), 2)
        command = ("bwa", "mem", "-t", "2", "-K", "2000", self.prefix, "-")
        os._exit(cli.main(["run", "2x1-bound", "-o", str(self.folder / f"{os.getpid()}.sam"), "--", *command]))

    def claims(self) -> dict[int, list[int]]:
        """Return the PUs of each run that lives and has claimed some."""
        texts = {int(file.name.split("-")[-2]): file.read_text() for file in self.folder.glob("*-claim-*-*")}
        return {pid: sorted(parse_list(text)) for pid, text in texts.items() if text and pid in self.inputs}

    def kill(self, pid: int) -> None:
        """Kill a run, which leaves the file of its claim."""
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(self.inputs.pop(pid))

    def end(self, reads: bytes) -> list[dict]:
        """Give all runs their reads; return how each one ended, in the order of their starts."""
        results = []
        for pid, writing in self.inputs.items():
            os.write(writing, reads)
            os.close(writing)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            lines = (self.folder / f"{pid}.sam").read_text().splitlines()
            messages = (self.folder / f"{pid}.txt").read_text()
            results.append(
                {"status": status, "alignments": [li for li in lines if li[0] != "@"], "text": messages}
            )
        return results


def main() -> None:
    """Start, kill and end runs."""
    prefix, reads = sys.argv[1:]
    with tempfile.TemporaryDirectory() as name:
        os.environ["FIRSTTOUCH_LOCK"] = name
        runs, claims = Runs(prefix, Path(name)), []
        for count in (2, 2, 4):
            runs.start(count)
            claims.append(list(runs.claims().values()))
        shared = [*runs.inputs][4:]
        for pid in [*runs.inputs][2:]:
            runs.kill(pid)
        runs.start(1)
        claims.append(list(runs.claims().values()))
        results = runs.end(Path(reads).read_bytes())
        left = [file.name for file in Path(name).glob("*-claim-*-*")]
        messages = [(Path(name) / f"{pid}.txt").read_text() for pid in shared]
    print(json.dumps({"claims": claims, "results": results, "left": left, "shared": messages}))


if __name__ == "__main__":
    main()
