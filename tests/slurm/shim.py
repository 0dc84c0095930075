# SPDX-License-Identifier: Apache-2.0
"""Replaces the probe where it measures: prints its real output, with the bandwidth and when a test chooses.

FIRSTTOUCH_SHIM is a test's folder. Its factors.json has each host's share of the bandwidth (default 1). Rates are
20 GB/s with a noise of 1 %: other values in each measurement, the same ones whenever the test is repeated. While
the folder has a file ``hold.HOST``, no measurement on that host ends.
FIRSTTOUCH_SHIM_CACHE is a folder with the real probe's output by arguments, so that it runs once for all tests.
It makes a short run with small sizes (SHORT).
"""

import fcntl
import hashlib
import json
import os
import random
import socket
import subprocess
import sys
import time
from pathlib import Path

RATE = 20.0
#: Further options of the real probe, by aspect. The number of the samples of a bandwidth decides verdicts.
SHORT = {
    "bandwidth": ["--array-bytes=16MiB"],
    "latency": ["--sanity", "--sizes=" + ",".join(f"{kibibytes}KiB" for kibibytes in range(4, 62, 2))],
}


def main() -> int:
    folder, cache, argv = (
        Path(os.environ["FIRSTTOUCH_SHIM"]),
        Path(os.environ["FIRSTTOUCH_SHIM_CACHE"]),
        sys.argv[1:],
    )
    file = cache / hashlib.sha256("\0".join(argv).encode()).hexdigest()
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            real = [os.environ["FIRSTTOUCH_SHIM_PROBE"], *argv, *SHORT.get(argv[0], ["--sanity"])]
            done = subprocess.run(real, stdout=subprocess.PIPE, check=False)
            if done.returncode:
                return done.returncode
            file.write_bytes(done.stdout)
    host = os.environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0]
    while (folder / f"hold.{host}").exists():
        time.sleep(0.1)
    runs = folder / f"runs.{host}.{file.name}"
    with runs.open("ab") as counted:
        counted.write(b".")
    chance = random.Random(f"{host} {argv} {runs.stat().st_size}")  # noqa: S311 - no secret
    factor = json.loads((folder / "factors.json").read_text()).get(host, 1)
    for text in file.read_text().splitlines():
        line = json.loads(text)
        if line.get("unit") == "GB/s":
            line["samples"] = [RATE * factor * chance.uniform(0.99, 1.01) for _ in line["samples"]]
            line["value"] = sorted(line["samples"])[len(line["samples"]) // 2]
        print(json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
