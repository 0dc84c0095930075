# SPDX-License-Identifier: Apache-2.0
"""Runs a command line of firsttouch as several tasks inside the guest: `tasks_inside.py FOLDER WORDS...`.

The environments of the tasks are the files environ-* of FOLDER, as the kernel shows them. One process loads the
command and forks for each task, because loading takes seconds in the emulator. FOLDER is also that of held
programs. The exit status is the highest one of a task.
"""

import functools
import os
import sys
from pathlib import Path

# This file is started by its path, so the packages of the tests are not on sys.path.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from factories import held_programs
from firsttouch.execution import placement_check
from firsttouch.host import topology

folder = Path(sys.argv[1])
# All tasks are on one host and may use the same PUs.
topology.probe_xml = functools.cache(topology.probe_xml)
placement_check.look = held_programs.releasing(placement_check.look, folder)
# The module that runs programs takes the look when it is imported.
from firsttouch import cli  # noqa: E402

# Loads the command and its data.
cli.main(["run", "1x-default", "--", "true"])
tasks = []
for file in sorted(folder.glob("environ-*")):
    variables = [os.fsdecode(line).partition("=") for line in file.read_bytes().split(b"\0") if line]
    if not (task := os.fork()):
        os.environ.clear()
        os.environ.update({name: value for name, _, value in variables})
        status = cli.main(sys.argv[2:])
        sys.stderr.flush()
        os._exit(status)
    tasks.append(task)
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(task, 0)[1]) % 256 for task in tasks))
