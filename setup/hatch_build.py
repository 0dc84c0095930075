# SPDX-License-Identifier: Apache-2.0
"""Packs what git tracks, and adds to the wheel what an installed copy needs from outside of src/.

firsttouch.paths finds the added files in share/. A checkout in use has system files, records and reports of its
site, which are not for others. A source archive has no git, and only files that were tracked.
"""

import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SHARED = (
    "reframe/*.py",
    "reframe/systems/*.yaml",
    "reframe/systems/processors/*.toml",
    "datasets/*.toml",
    "slurm/**/*",
    "contrib/monitoring/*",
)


class BuildHook(BuildHookInterface[Any]):
    """The hook that pyproject.toml names."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Choose the files; *version* is ``editable`` for ``pip install -e``, which finds them in the checkout."""
        pth = {"setup/firsttouch_reframe.pth": "firsttouch_reframe.pth"}
        if version == "editable":
            build_data["force_include_editable"] |= pth
            return
        root = Path(self.root)
        untracked = _listed(root, "--others", "--exclude-standard")
        # Patterns as in .gitignore, in which a backslash makes the next character an ordinary one.
        patterns = ["/" + "".join(f"\\{c}" if c in "*?[]!#\\ " else c for c in name) for name in untracked]
        self.build_config.target_config.setdefault("exclude", []).extend(patterns)
        if self.target_name != "wheel":
            return
        files = [file.relative_to(root) for pattern in SHARED for file in root.glob(pattern) if file.is_file()]
        tracked = _listed(root) or set(map(str, files))
        build_data["force_include"] |= pth | {str(f): f"firsttouch/share/{f}" for f in files if str(f) in tracked}


def _listed(root: Path, *options: str) -> set[str]:
    """Return the names that `git ls-files` lists; none where there is no git repository."""
    if not (root / ".git").exists():
        return set()
    argv = ["git", "-c", f"safe.directory={root}", "ls-files", "-z", *options]
    names = subprocess.run(argv, cwd=root, capture_output=True, text=True, check=True).stdout
    return set(filter(None, names.split("\0")))
