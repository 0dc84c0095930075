# SPDX-License-Identifier: Apache-2.0
"""Programs that wait until their placement has been sampled, and the command line that lets them go on.

A program waits by reading the FIFO held-PID, which it makes in the folder of held programs, to its end. It goes on
after the first sample that began when the FIFO was there, so this shows what the program holds while it waits.
Run this file with that folder and the words of a command of firsttouch.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from firsttouch.execution import placement_check

Look = Callable[[int, placement_check.Observed], None]


def python_wait(folder: Path) -> str:
    """Return the line of Python with which a program waits; *folder* may be its own, Path()."""
    return f"import os; held = f'{folder}/held-{{os.getpid()}}'; os.mkfifo(held); open(held).read()"


def shell_wait(folder: Path) -> str:
    """Return the line of a shell, without single quotes, with which a program waits."""
    return f"mkfifo {folder}/held-$$; read -r line < {folder}/held-$$; true"


def command(folder: Path, *words: object) -> list[str]:
    """Return the argv of a command of firsttouch that lets the programs in *folder* go on."""
    return [sys.executable, __file__, *map(str, (folder, *words))]


def run(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """Run a command of firsttouch that lets the programs in *folder* go on."""
    argv = command(folder, *words)
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)


def releasing(look: Look, folder: Path) -> Look:
    """Return a look that lets the programs in *folder* go on when they have been sampled."""

    def look_and_release(pid: int, observed: placement_check.Observed) -> None:
        fifos = [folder / f"held-{member}" for member in placement_check.family(pid)]
        waiting = [fifo for fifo in fifos if fifo.exists()]
        looks = observed.looks
        look(pid, observed)
        # A look adds no sample while a launcher becomes the program.
        if observed.looks == looks and not observed.unreadable:
            return
        for fifo in waiting:
            os.close(os.open(fifo, os.O_WRONLY))
            fifo.unlink()

    return look_and_release


def main() -> int:
    """Run the command line of firsttouch, and let the programs go on that it samples."""
    placement_check.look = releasing(placement_check.look, Path(sys.argv[1]))  # type: ignore[assignment]
    # The module that runs programs takes the look when it is imported.
    from firsttouch import cli  # noqa: PLC0415

    return cli.main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
