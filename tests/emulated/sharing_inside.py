# SPDX-License-Identifier: Apache-2.0
"""Runs `firsttouch run` several times at once inside the guest: `sharing_inside.py INDEX READS`.

The runs are forked from this process, because each start of Python takes seconds. They claim their PUs and wait
for reads. Prints the PUs of the claims after 2, 4 and 8 starts, and after six kills and a further start, and how
the last three runs ended.
"""

import contextlib
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
from firsttouch.tools import lean_numpy

with lean_numpy():
    from firsttouch.genomics import read_stream

LOADED = (run, run_command, read_stream)
PREFIX, READS = sys.argv[1:]
#: The pipes of the runs that live, by process number.
INPUTS: dict[int, int] = {}


def start(count: int, folder: Path) -> list[list[int]]:
    """Start *count* runs at once, and return the PUs that all living runs have claimed."""
    for _ in range(count):
        reading, writing = os.pipe()
        if pid := os.fork():
            os.close(reading)
            INPUTS[pid] = writing
            continue
        for descriptor in (writing, *INPUTS.values()):
            os.close(descriptor)
        os.dup2(reading, 0)
        os.dup2(os.open(folder / f"{os.getpid()}.txt", os.O_WRONLY | os.O_CREAT), 2)
        words = ("bwa", "mem", "-t", "2", "-K", "2000", PREFIX, "-")
        os._exit(cli.main(["run", "2x1-bound", "-o", str(folder / f"{os.getpid()}.sam"), "--", *words]))
    while True:
        claims = []
        for file in folder.glob("*-claim-*-*"):
            with contextlib.suppress(FileNotFoundError):  # a claim ends between the list and the reading
                if int(file.name.split("-")[-2]) in INPUTS and (text := file.read_text()):
                    claims.append(sorted(parse_list(text)))
        if len(claims) == len(INPUTS):
            return claims
        time.sleep(0.1)


def end(pid: int, folder: Path) -> dict:
    """Give a run its reads, and return its exit status and alignments."""
    os.write(INPUTS[pid], Path(READS).read_bytes())
    os.close(INPUTS[pid])
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    lines = (folder / f"{pid}.sam").read_text().splitlines()
    return {"status": status, "alignments": [line for line in lines if not line.startswith("@")]}


def main() -> None:
    """Start, kill and end runs."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["FIRSTTOUCH_LOCK"] = name
        claims = [start(count, folder) for count in (2, 2, 4)]
        sharing = [*INPUTS][4:]
        for pid in [*INPUTS][2:]:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(INPUTS.pop(pid))
        claims.append(start(1, folder))
        results = [end(pid, folder) for pid in INPUTS]
        left = [file.name for file in folder.glob("*-claim-*-*")]
        messages = [(folder / f"{pid}.txt").read_text() for pid in sharing]
    print(json.dumps({"claims": claims, "results": results, "left": left, "sharing": messages}))


if __name__ == "__main__":
    main()
