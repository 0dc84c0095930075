# SPDX-License-Identifier: Apache-2.0
"""firsttouch: validates NUMA hosts, and finds the fastest placement of memory-bound programs on them.

The names of ``__all__`` are for scripts and notebooks (docs/reference/python.md). Each is loaded at its first use.
"""

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
    #: Public name -> its module, and its name in that module.
    _PUBLIC = {
        "AdviceChoices": ("advice.advising", "Choices"),
        "AlignRequest": ("cli.run_command", "AlignRequest"),
        "AspectRequest": ("benchmarks.measure", "AspectRequest"),
        "BadInput": ("errors", "BadInput"),
        "CannotHere": ("errors", "CannotHere"),
        "FirstTouchError": ("errors", "FirstTouchError"),
        "Missing": ("errors", "Missing"),
        "ProgramSpec": ("benchmarks.site_checks", "ProgramSpec"),
        "RunFailed": ("errors", "RunFailed"),
        "RunRequest": ("cli.run_dataset", "RunRequest"),
        "advise_program": ("advice.advising", "advise_program"),
        "align": ("cli.run_command", "align"),
        "append_records": ("records.schema", "append"),
        "judge": ("report.inputs", "judge"),
        "load_system": ("systems.definition", "load"),
        "load_topology": ("host.topology", "load"),
        "measure_aspect": ("benchmarks.measure", "measure_aspect"),
        "measure_program": ("benchmarks.site_checks", "measure_program"),
        "plan": ("scenarios.placement", "plan"),
        "read_records": ("records.schema", "read"),
        "run_aligner": ("cli.run_dataset", "run_aligner"),
        "write_comparison": ("report.writing", "write_comparison"),
        "write_report": ("report.writing", "write_report"),
    }

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


__all__ = [
    "AdviceChoices",
    "AlignRequest",
    "AspectRequest",
    "BadInput",
    "CannotHere",
    "FirstTouchError",
    "Missing",
    "ProgramSpec",
    "RunFailed",
    "RunRequest",
    "advise_program",
    "align",
    "append_records",
    "judge",
    "load_system",
    "load_topology",
    "measure_aspect",
    "measure_program",
    "plan",
    "read_records",
    "run_aligner",
    "write_comparison",
    "write_report",
]


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
