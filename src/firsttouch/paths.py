# SPDX-License-Identifier: Apache-2.0
"""The folders of firsttouch: its files, additions of a site or a user, and where it writes.

A checkout keeps everything in itself. An installed copy has the same files in the package's folder share/ and
writes to the folders of the XDG base directory specification, or to FIRSTTOUCH_HOME instead.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

from firsttouch.errors import BadInput

#: This package.
PACKAGE = Path(__file__).resolve().parent
#: Whether this package lies in a checkout (``pip install -e``), and not in site-packages.
IN_CHECKOUT = (PACKAGE.parents[1] / "reframe" / "settings.py").is_file()
#: The checkout, or the folder with the same layout in the wheel.
ROOT = PACKAGE.parents[1] if IN_CHECKOUT else PACKAGE / "share"
#: The ReFrame checks, and ReFrame's configuration file next to them.
CHECKS = ROOT / "reframe"
SETTINGS = CHECKS / "settings.py"
#: The built-in system files; in a checkout also drafts for this host.
SYSTEMS = CHECKS / "systems"
#: The sbatch templates.
TEMPLATES = ROOT / "slurm"
#: Alerts of Prometheus and the dashboard of Grafana.
MONITORING = ROOT / "contrib" / "monitoring"

#: The system that stands for this host, whatever it is.
LOCAL = "local"
#: ReFrame's rule for names of systems and partitions.
NAME = r"[A-Za-z_][A-Za-z0-9_-]*\Z"
#: Kind of data files -> the folder of the built-in ones, and name of a table -> the built-in one.
_BUILT_IN = {
    "systems": SYSTEMS,
    "processors": SYSTEMS / "processors",
    "datasets": ROOT / "datasets",
    "aligners": PACKAGE / "genomics" / "aligners",
    "policies.toml": PACKAGE / "scenarios" / "policies.json",
    "memory_options.toml": PACKAGE / "scenarios" / "memory_options.json",
    "causes.toml": PACKAGE / "judge" / "causes.toml",
    "metrics.toml": PACKAGE / "records" / "metrics.toml",
}
#: The kinds with an environment variable for further folders.
_IN_VARIABLES = ("systems", "datasets", "aligners")


def _home(variable: str, default: str) -> Path:
    """Return FIRSTTOUCH_HOME, or firsttouch/ in a folder of the XDG base directory specification."""
    if home := os.environ.get("FIRSTTOUCH_HOME"):
        return Path(home).absolute()
    base = os.environ.get(variable, "")
    # The specification requires relative paths to be ignored.
    return (Path(base) if base.startswith("/") else Path.home() / default) / "firsttouch"


def _kept_in_checkout() -> bool:
    return IN_CHECKOUT and not os.environ.get("FIRSTTOUCH_HOME")


def config() -> Path:
    """Return the folder of the user's own data files: FIRSTTOUCH_HOME, or firsttouch/ in XDG_CONFIG_HOME."""
    return _home("XDG_CONFIG_HOME", ".config")


def site() -> Path:
    """Return the folder of the site's data files: FIRSTTOUCH_SITE, or /etc/firsttouch."""
    return Path(os.environ.get("FIRSTTOUCH_SITE") or "/etc/firsttouch").absolute()


def data() -> Path:
    """Return the folder of datasets and indexes: FIRSTTOUCH_DATA, or datasets/store of the checkout, or data/."""
    if named := os.environ.get("FIRSTTOUCH_DATA"):
        return Path(named).absolute()
    if _kept_in_checkout():
        return ROOT / "datasets" / "store"
    return _home("XDG_DATA_HOME", ".local/share") / "data"


def cache() -> Path:
    """Return the folder of files that can be made again."""
    if _kept_in_checkout():
        return ROOT / ".cache"
    return _home("XDG_CACHE_HOME", ".cache") / "cache"


def advice() -> Path:
    """Return the folder of saved advice: FIRSTTOUCH_ADVICE, .cache/advice of the checkout, or advice/."""
    if named := os.environ.get("FIRSTTOUCH_ADVICE"):
        return Path(named).absolute()
    if _kept_in_checkout():
        return ROOT / ".cache" / "advice"
    return _home("XDG_DATA_HOME", ".local/share") / "advice"


def results() -> Path:
    """Return the folder of results: FIRSTTOUCH_OUT, or reports/out of the checkout, or reports/ here."""
    out = ROOT / "reports" / "out" if IN_CHECKOUT else Path("reports")
    return Path(os.environ.get("FIRSTTOUCH_OUT") or out).absolute()


def drafts() -> Path:
    """Return the folder that drafts of system files are written to."""
    return SYSTEMS if _kept_in_checkout() else config() / "systems"


def folders(kind: str) -> tuple[Path, ...]:
    """Return the existing folders of data files of a *kind* in search order.

    *kind* is systems, datasets, aligners or checks. First come the folders in FIRSTTOUCH_SYSTEMS,
    FIRSTTOUCH_DATASETS or FIRSTTOUCH_ALIGNERS (a colon-separated list), then the user's, the site's and the
    built-in ones. Raises BadInput if the variable names a folder that does not exist.
    """
    variable = f"FIRSTTOUCH_{kind.upper()}"
    extra = [Path(f) for f in os.environ.get(variable, "").split(":") if f] if kind in _IN_VARIABLES else []
    for folder in extra:
        if not folder.is_dir():
            raise BadInput(f"{variable} names it, but there is no such folder", file=folder)
    own = (config() / kind, site() / kind, _BUILT_IN.get(kind))
    return (*extra, *(folder for folder in own if folder is not None and _exists(folder)))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except PermissionError:  # in a folder that this user may not enter, such as another user's home
        return False


def data_files(kind: str, suffix: str) -> dict[str, Path]:
    """Return the data files of a *kind* by name, sorted. If several have one name, the first folder's is used."""
    files: dict[str, Path] = {}
    for folder in reversed(folders(kind)):
        files |= {f.stem: f for f in folder.glob(f"*{suffix}") if not f.name.startswith(".")}
    return dict(sorted(files.items()))


def tables_of(name: str) -> tuple[Path, ...]:
    """Return the existing files *name*, such as policies.toml: the built-in, if any, the site's and the user's."""
    built_in = [_BUILT_IN[name]] if name in _BUILT_IN else []
    return tuple(f for f in (*built_in, site() / name, config() / name) if _exists(f))


def deciders(folder: Path) -> set[int]:
    """Return the ids of the users whose files in *folder* are trusted: root, this user and the folder's owner."""
    return {0, os.geteuid(), folder.stat().st_uid}


def resolve(path: Path) -> Path:
    """Return *path* with all links resolved; raises BadInput for a loop of links."""
    try:
        path.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise BadInput("a symbolic link that leads to itself", file=path) from error
    return path.resolve()


def for_jobs() -> dict[str, str]:
    """Return the variables with which jobs find an installed copy and its results; none in a checkout."""
    if IN_CHECKOUT:
        return {}
    return {"FIRSTTOUCH_BIN": str(Path(sys.executable).parent), "FIRSTTOUCH_OUT": str(results())}


def configure_reframe() -> None:
    """Let ReFrame find SETTINGS, unless the environment names another file.

    firsttouch_reframe.pth in site-packages calls it when the program ``reframe`` starts, because ReFrame searches
    neither the folder of the checks nor the current one for its configuration.
    """
    if ":" in str(SETTINGS):  # RFM_CONFIG_FILES is a colon-separated list
        print(f"firsttouch: {SETTINGS}: for ReFrame a colon ends a path: move the folder", file=sys.stderr)
    elif SETTINGS.is_file():
        # ReFrame reads its configuration in the folder of that file.
        for name, value in {"RFM_CONFIG_FILES": str(SETTINGS), **for_jobs()}.items():
            os.environ.setdefault(name, value)
