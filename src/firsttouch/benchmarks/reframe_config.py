# SPDX-License-Identifier: Apache-2.0
"""ReFrame's site configuration, built from the system files (ReFrame 4.10, configuration reference).

ReFrame writes to the home and the current directory by default. Both may be read-only, so this configuration puts
everything below one folder.
"""

from __future__ import annotations

import os
import random
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from reframe.core.exceptions import ConfigError

from firsttouch import paths
from firsttouch.benchmarks import drawn_order, profiles
from firsttouch.benchmarks.reframe_run import TMPDIR
from firsttouch.errors import BadInput, FirstTouchError, Missing
from firsttouch.systems.definition import Partition, System, available, load

#: The columns of ReFrame's performance log. Its keyword "all" includes lists, which contain commas.
_PERFLOG_COLUMNS = (
    "check_job_completion_time",
    "check_display_name",
    "check_system",
    "check_partition",
    "check_environ",
    "check_jobid",
    "check_job_nodelist",
    "check_result",
    "check_perf_var",
    "check_perf_value",
    "check_perf_unit",
    "check_perf_ref",
    "check_perf_lower_thres",
    "check_perf_upper_thres",
    "check_perf_result",
)

#: ReFrame cancels jobs that wait for ReqNodeNotAvail, which Slurm also states for a busy host. It also hides all
#: SBATCH_* variables from sbatch except these.
_SLURM = {
    "ignore_reqnodenotavail": True,
    "slurm_envvar_whitelist": [
        f"SBATCH_{name}" for name in ("ACCOUNT", "CLUSTERS", "CONSTRAINT", "PARTITION", "QOS", "RESERVATION")
    ],
}


#: How often ReFrame polls a local job: T seconds after its start, every 0.1 s + T / 50. ReFrame's default interval
#: grows five times as fast, which suits Slurm, where a poll costs far more.
_POLLS = {"poll_rate_max": 10, "poll_rate_decay": 0.02}


def site_configuration(settings: Path) -> dict[str, Any]:
    """Return ReFrame's configuration of all systems; *settings* is the configuration file.

    An invalid system file is reported and left out, as is this host without the probe. Raises ReFrame's
    ConfigError, which it prints as one line.
    """
    systems = []
    try:
        profiles.chosen_effort()  # raises for a wrong effort, which the checks depend on
        random.seed(drawn_order.seed())  # ReFrame's --exec-order=random draws by the functions of this module
        for name in available():
            try:
                systems.append(_system(name))
            except (BadInput, Missing) as error:
                print(f"firsttouch: this system is left out: {error}", file=sys.stderr)
    except FirstTouchError as error:
        # ReFrame also prints the cause of an error, which would repeat the line.
        raise ConfigError(str(error)) from None
    # ReFrame selects the first system with a matching hostname, so a pattern for any host comes last.
    systems.sort(key=lambda system: ".*" in system["hostnames"])
    local = [s["name"] for s in systems if all(p["scheduler"] == "local" for p in s["partitions"])]
    out = paths.results() / "reframe"
    if (checks_tmpdir := os.environ.pop(TMPDIR, None)) is not None:
        os.environ["TMPDIR"] = checks_tmpdir
        if not checks_tmpdir:
            del os.environ["TMPDIR"]
    return {
        "systems": systems,
        # ReFrame defines the environment "builtin", and warns at every start if it is defined again.
        "general": [
            {
                "check_search_path": [str(settings.parent)],
                "report_file": str(out / "reports" / "run-{sessionid}.json"),
                "topology_prefix": str(out / "topology"),
                # ReFrame would install itself on the hosts from the internet to detect facts that the system files
                # state.
                "remote_detect": False,
            },
            {"target_systems": local, **_POLLS},
        ],
        "logging": [
            {
                "level": _log_level(),
                "perflog_multiline": True,
                "handlers$": [{"type": "stream", "name": "stdout", "level": "info", "format": "%(message)s"}],
                "handlers": [],
                "handlers_perflog": [
                    {
                        "type": "filelog",
                        "basedir": str(out / "perflogs"),
                        "prefix": "%(check_system)s/%(check_partition)s",
                        "level": _log_level(),
                        "format": "|".join(f"%({column})s" for column in _PERFLOG_COLUMNS),
                        "append": True,
                    }
                ],
            }
        ],
        "storage": [{"enable": True, "backend": "sqlite", "sqlite_db_file": str(out / "results.db")}],
    }


def _log_level() -> str:
    """Return the lowest level of messages that ReFrame processes; only -v enables debug messages.

    For each message, even one that no handler prints, ReFrame reads all attributes of the check, and a deprecated
    one costs a walk through the stack: debug messages cost 0.4 s of CPU per check.
    """
    verbose = os.environ.get("RFM_VERBOSE") or any(re.match(r"-\w*v|--verb", word) for word in sys.argv[1:])
    return "undefined" if verbose else "info"


def _folders() -> dict[str, str]:
    """Return the folders that ReFrame writes to; it cannot run a local job in a path with a blank."""
    prefix = str(paths.results() / "reframe")
    if " " not in prefix:
        return {"prefix": prefix}
    return {"prefix": prefix, "stagedir": str(Path(tempfile.gettempdir(), f"firsttouch-{os.geteuid()}-stage"))}


def _system(name: str) -> dict[str, Any]:
    """Return ReFrame's configuration of one system."""
    system = load(name)
    return {
        "name": system.name,
        "descr": system.description,
        "hostnames": list(system.hostnames),
        **_folders(),
        # Two benchmarks at once on a host would disturb each other.
        "max_local_jobs": 1,
        "partitions": [_partition(system, partition) for partition in system.partitions],
    }


def _partition(system: System, partition: Partition) -> dict[str, Any]:
    facts = system.facts
    return {
        "name": partition.name,
        "descr": partition.description,
        "scheduler": partition.scheduler,
        "launcher": partition.launcher,
        "access": list(partition.access),
        "max_jobs": partition.max_jobs,
        "sched_options": _SLURM if partition.scheduler in {"slurm", "squeue"} else {},
        "time_limit": partition.time_limit,
        "prepare_cmds": list(partition.prepare_cmds),
        "environs": list(partition.environs),
        "processor": {
            "model": facts.processor,
            "num_cpus": facts.pus,
            "num_cpus_per_core": facts.threads_per_core,
            "num_cpus_per_socket": facts.pus // facts.packages,
            "num_sockets": facts.packages,
        },
        "features": [partition.backend, *(["numa"] if facts.numa_nodes > 1 else [])],
        # The properties that checks may require in ``valid_systems``, such as ``%numa_nodes=8``.
        "extras": {"numa_nodes": facts.numa_nodes, "packages": facts.packages, "pus": facts.pus},
    }
