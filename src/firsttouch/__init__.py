# SPDX-License-Identifier: Apache-2.0
"""firsttouch: validates NUMA hosts, and finds the fastest placement of memory-bound programs on them."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    #: From Git's tags, as of the installation. It is read at its first use: main() handles interrupts by then.
    __version__: str
else:

    def __getattr__(name: str) -> str:
        if name != "__version__":
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        version = globals()[name] = installed_version("firsttouch") or "0+unknown"
        return version


def installed_version(package: str) -> str | None:
    """Return the version of an installed Python package, or None. *package* is its normalized name (reframe_hpc).

    It is read from the name of the package's .dist-info folder: importing importlib.metadata would double the CPU
    time of `firsttouch --version`.
    """
    import contextlib  # noqa: PLC0415 - as late as the version
    import os  # noqa: PLC0415
    import sys  # noqa: PLC0415

    start, end = f"{package}-", ".dist-info"
    for folder in sys.path:
        with contextlib.suppress(OSError):
            for name in os.listdir(folder or "."):  # noqa: PTH208 - pathlib takes longer to import
                if name.lower().startswith(start) and name.endswith(end):
                    return name[len(start) : -len(end)]
    return None
