# SPDX-License-Identifier: Apache-2.0
"""Writes the lock file of all sources of an environment, with patches. Run by ``spack python``."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import spack.environment
import spack.patch
from sources import Source, write

#: The publishers of what Spack takes from a mirror, or from a redirector that may lead to one without the file.
PUBLISHERS = {
    r"ftpmirror\.gnu\.org(/gnu)?": "ftp.gnu.org/gnu",
    r"mirrors\.edge\.kernel\.org": "www.kernel.org",
    r"mirrors\.sonic\.net": "cdn.openbsd.org",
}


def sources(package):
    """Yield the sources of a package that Spack fetches."""
    version = str(package.version)
    for stage in package.stage:
        fetcher = stage.default_fetcher
        digest = getattr(fetcher, "digest", None)
        # A file: address is part of the recipe.
        if digest and not fetcher.url.startswith("file:"):
            path = stage.mirror_layout.digest_path or stage.mirror_layout.path
            url = fetcher.url
            for mirror, publisher in PUBLISHERS.items():
                url = re.sub(mirror, publisher, url)
            # The package index of Python: pip knows the site's.
            if match := re.search(r"/packages/[a-z0-9.]+/\w/([^/]+)/[^/]+$", url):
                url = f"{'pypi' if url.endswith('.whl') else 'sdist'}:{match[1]}=={version}"
            yield Source(package.name, version, digest, url, path)


def main():
    """Write the lock file named on the command line."""
    all_sources = []
    for spec in spack.environment.active_environment().all_specs():
        if spec.external or not spec.package.has_code or spec.is_develop:
            continue
        all_sources += sources(spec.package)
    write(Path(sys.argv[1]), all_sources)
    print(f"stack: {sys.argv[1]}: {len(set(all_sources))} sources", file=sys.stderr)


if __name__ == "__main__":
    main()
