# SPDX-License-Identifier: Apache-2.0
"""Adds to the wheel what an installed copy needs from outside of src/; firsttouch.paths finds it in share/."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SHARED = (
    "reframe/*.py",
    "reframe/systems/*.yaml",
    "datasets/*.toml",
    "studies/*.toml",
    "reports/published/*",
    "slurm/**/*",
    "monitoring/*",
)
#: A draft of the host that builds the wheel.
_OWN = "reframe/systems/local.yaml"


class BuildHook(BuildHookInterface[Any]):
    """The hook that pyproject.toml names."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files; *version* is ``editable`` for ``pip install -e``, which finds them in the checkout."""
        pth = {"setup/firsttouch_reframe.pth": "firsttouch_reframe.pth"}
        if version == "editable":
            build_data["force_include_editable"] |= pth
            return
        root = Path(self.root)
        files = [file.relative_to(root) for pattern in SHARED for file in root.glob(pattern) if file.is_file()]
        shared = {str(file): f"firsttouch/share/{file}" for file in files if str(file) != _OWN}
        build_data["force_include"] |= pth | shared
