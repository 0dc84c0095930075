# SPDX-License-Identifier: Apache-2.0
"""Whether KVM works on this host, which only the boot of a guest shows.

/dev/kvm exists on hosts where a nested KVM kills guests in the middle of their boot. Therefore the first boot of
each machine is a trial, and its result is kept until the host reboots.
"""

from __future__ import annotations

import os
from pathlib import Path

from firsttouch.errors import BadInput

from . import image

_FAILED = "failed:"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Trials:
    """The results of KVM's trials since this host booted, for one guest kernel."""

    def __init__(self, release: str) -> None:
        self._file = image.cache() / f"kvm-{_BOOT_ID.read_text().strip()}-{release}"

    def accelerators(self, machine: str) -> list[str]:
        """Return the accelerators for *machine*: one, or KVM on trial and the one to use if it fails.

        $FIRSTTOUCH_ACCELERATOR, kvm or tcg, chooses one without a trial.
        """
        if chosen := os.environ.get("FIRSTTOUCH_ACCELERATOR"):
            if chosen not in {"kvm", "tcg"}:
                raise BadInput(f"FIRSTTOUCH_ACCELERATOR is '{chosen}': it may be kvm or tcg")
            return [chosen]
        lines = self._lines()
        failed = any(line.startswith(_FAILED) for line in lines)
        if machine in lines and not failed:
            return ["kvm"]
        if not os.access("/dev/kvm", os.R_OK | os.W_OK) or failed:
            return ["tcg"]
        return ["kvm", "tcg"]

    def worked(self, machine: str) -> None:
        self._note(machine)

    def failed(self, reason: str) -> None:
        """Note a failure, which counts for all machines."""
        self._note(f"{_FAILED} {reason.splitlines()[0]}")

    def _lines(self) -> list[str]:
        return self._file.read_text().splitlines() if self._file.exists() else []

    def _note(self, line: str) -> None:
        # One short appending write: concurrent processes do not mix their lines.
        with self._file.open("a") as file:
            file.write(f"{line}\n")
