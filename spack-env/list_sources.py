# SPDX-License-Identifier: Apache-2.0
"""Run by ``spack python`` on an environment: writes the lock file of all its sources, patches included."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import spack.environment
import spack.patch
from sources import Source, write


def sources(package):
    """Yield what a package is built from, as far as Spack fetches it."""
    version = str(package.version)
    for stage in package.stage:
        fetcher = stage.default_fetcher
        digest = getattr(fetcher, "digest", None)
        # A file: address is a part of the recipes themselves.
        if digest and not fetcher.url.startswith("file:"):
            path = stage.mirror_layout.digest_path or stage.mirror_layout.path
            yield Source(package.name, version, digest, fetcher.url, path)


def main():
    """Write the lock file that the command line names."""
    found = []
    for spec in spack.environment.active_environment().all_specs():
        if spec.external or not spec.package.has_code or spec.is_develop:
            continue
        found += sources(spec.package)
    write(Path(sys.argv[1]), found)
    print(f"stack: {sys.argv[1]}: {len(set(found))} sources", file=sys.stderr)


if __name__ == "__main__":
    main()
