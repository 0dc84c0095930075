# SPDX-License-Identifier: Apache-2.0
"""firsttouch: validates NUMA hosts, and finds the fastest placement of memory-bound programs on them.

The names of ``__all__`` are for scripts and notebooks (docs/reference/python.md). Each is loaded at its first use.
"""
# ruff: noqa: F401, PLE0604 - the first names are for editors and type checkers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from firsttouch.advice.advising import Choices as AdviceChoices
    from firsttouch.advice.advising import advise_program as advise_program
    from firsttouch.benchmarks.measure import AspectRequest, measure_aspect
    from firsttouch.benchmarks.site_checks import ProgramSpec, measure_program
    from firsttouch.cli.run_command import AlignRequest, align
    from firsttouch.cli.run_dataset import RunRequest, run_aligner
    from firsttouch.errors import BadInput, CannotHere, FirstTouchError, Missing, RunFailed
    from firsttouch.host.topology import load as load_topology
    from firsttouch.records.schema import append as append_records
    from firsttouch.records.schema import read as read_records
    from firsttouch.report.inputs import judge
    from firsttouch.report.writing import write_comparison, write_report
    from firsttouch.scenarios.placement import plan
    from firsttouch.systems.definition import load as load_system

    #: The version in pyproject.toml. It is read at its first use, when main() already handles interrupts.
    __version__: str
else:
    #: Module -> its public names here.
    _NAMES = {
        "advice.advising": ("Choices as AdviceChoices", "advise_program"),
        "benchmarks.measure": ("AspectRequest", "measure_aspect"),
        "benchmarks.site_checks": ("ProgramSpec", "measure_program"),
        "cli.run_command": ("AlignRequest", "align"),
        "cli.run_dataset": ("RunRequest", "run_aligner"),
        "errors": ("BadInput", "CannotHere", "FirstTouchError", "Missing", "RunFailed"),
        "host.topology": ("load as load_topology",),
        "records.schema": ("append as append_records", "read as read_records"),
        "report.inputs": ("judge",),
        "report.writing": ("write_comparison", "write_report"),
        "scenarios.placement": ("plan",),
        "systems.definition": ("load as load_system",),
    }
    #: Public name -> its module, and its name in that module.
    _PUBLIC = {text.split()[-1]: (module, text.split()[0]) for module, texts in _NAMES.items() for text in texts}
    __all__ = [*_PUBLIC]

    def __getattr__(name: str) -> object:
        if name == "__version__":
            value: object = installed_version("firsttouch") or "0+unknown"
        elif name in _PUBLIC:
            import importlib  # noqa: PLC0415 - as late as the names

            module, attribute = _PUBLIC[name]
            value = getattr(importlib.import_module(f"firsttouch.{module}"), attribute)
        else:
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        globals()[name] = value
        return value


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
