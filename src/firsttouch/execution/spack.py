# SPDX-License-Identifier: Apache-2.0
"""The backend ``spack``: commands run from the view of an environment that spack-env/stack.py installs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from firsttouch import paths
from firsttouch.errors import BadInput, Missing
from firsttouch.execution import backends, build_info
from firsttouch.execution.backends import Start


def start_command(view: str, argv: Sequence[str]) -> Start:
    """Return how ``firsttouch ARGV`` is started from *view* (empty: FIRSTTOUCH_VIEW or .cache/spack's).

    Raises Missing if the view or one of its programs does not exist, BadInput if there are several views.
    """
    folder = _view(view or os.environ.get("FIRSTTOUCH_VIEW", ""))
    path = f"{folder / 'bin'}:{os.environ.get('PATH', '')}"
    # numactl may also be an external package of Spack, on this host.
    for program, place in (("firsttouch", str(folder / "bin")), ("numactl", path)):
        if shutil.which(program, path=place) is None:
            raise Missing(f"{folder} has no {program}: `spack-env/stack.py install` builds the whole environment")
    origin = build_info.read(folder / "share" / "firsttouch" / "origin.json")
    backends.check_origin(origin, str(folder))
    env = {**os.environ, **backends.variables()}
    env["PATH"] = path
    env[backends.VARIABLE] = f"spack: {origin.target}, {origin.revision or origin.version}"
    # These variables are meant for this Python, not for the view's.
    for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "RFM_CONFIG_FILES"):
        env.pop(name, None)
    return Start([str(folder / "bin" / "firsttouch"), *argv], env)


def _view(named: str) -> Path:
    if named:
        folder = Path(named).absolute()
        if not folder.is_dir():
            raise Missing(f"{folder}: this view of Spack does not exist")
        return folder
    views = sorted((paths.cache() / "spack").glob("*/view"))
    if not views:
        raise Missing("no view of Spack in .cache/spack: `spack-env/stack.py install` makes one (FIRSTTOUCH_VIEW)")
    if len(views) > 1:
        raise BadInput(
            f"several views of Spack: {', '.join(map(str, views))}; choose one by --image or FIRSTTOUCH_VIEW"
        )
    return views[0]
