# SPDX-License-Identifier: Apache-2.0
"""The backend ``apptainer``: commands run in a container of an image of containers/.

Hosts that cannot mount images unpack them at each start. Restrictions of the site are reported in one line before
any work.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from firsttouch import paths
from firsttouch.errors import BadInput, CannotHere, Missing, RunFailed, TimedOut
from firsttouch.execution import backends
from firsttouch.execution.backends import Start
from firsttouch.execution.build_info import Origin
from firsttouch.tools import run_tool

#: The default image.
IMAGE = (paths.ROOT / "containers" if paths.IN_CHECKOUT else paths.data()) / "firsttouch.sif"
#: The file in an image that identifies its copy of firsttouch.
_ORIGIN = "/opt/firsttouch/share/firsttouch/origin.json"
#: Prefixes of variables with the number of a task, the limits of its job, and the addresses of other ranks: of
#: Slurm, PMI, PMIx, MPICH, Open MPI, Intel MPI, UCX, libfabric and OpenMP.
_OF_LAUNCHERS = ("SLURM_", "PMI_", "PMIX_", "MPI_LOCAL", "MPICH_", "OMPI_", "I_MPI_", "UCX_", "FI_", "OMP_")
#: Time limit of the trial start in seconds; a cold image on a shared file system is slow.
_PATIENCE = 120
_CAP_SYS_RESOURCE = 24
_CGROUPS = "/sys/fs/cgroup"
#: Begins the trial's line for a path that is missing or inaccessible in the container.
_LACKING = "firsttouch-lacks "
_TRIAL = """\
cat "$1"; shift
for path; do
    if ! [ -e "$path" ] || { [ -d "$path" ] && ! [ -x "$path" ]; }; then echo "firsttouch-lacks $path"; fi
done
"""
#: Folders that are not bound: the image has its own programs, and Apptainer mounts the others.
_SYSTEM = frozenset({"/dev", "/proc", "/sys", "/bin", "/sbin", "/lib", "/lib64", "/opt/firsttouch", "/opt/spack"})
_PROGRAMS = _SYSTEM | {
    f"{top}/{name}"
    for top in ("/usr", "/usr/local")
    for name in ("bin", "include", "lib", "lib64", "libexec", "sbin")
}


def start_command(image: str, argv: Sequence[str]) -> Start:
    """Return how ``firsttouch ARGV`` is started in *image* (empty: FIRSTTOUCH_IMAGE or IMAGE).

    The image is started once as a trial, with all paths that the command needs. Raises Missing without Apptainer
    or image, CannotHere if the site does not allow it, BadInput for a path that cannot be bound.
    """
    program = shutil.which("apptainer") or shutil.which("singularity")
    if program is None:
        raise Missing("backend apptainer: neither 'apptainer' nor 'singularity' is on PATH")
    file = Path(image or os.environ.get("FIRSTTOUCH_IMAGE") or IMAGE).absolute()
    if not file.exists():
        raise Missing(f"{file}: image not found: `make images` builds it, FIRSTTOUCH_IMAGE names another")
    variables = backends.variables()
    # Records name the host as Slurm does.
    variables |= {name: os.environ[name] for name in ("TMPDIR", "SLURMD_NODENAME") if os.environ.get(name)}
    launcher = {k: v for k, v in os.environ.items() if k.startswith(_OF_LAUNCHERS)}
    seen = paths_seen(argv, variables | {k: v for k, v in launcher.items() if k.startswith("PMIX_")})
    # Apptainer does not mount the cgroup files, which hold the job's limits.
    limits = [f"{_CGROUPS}:{_CGROUPS}:ro"] if Path(_CGROUPS).is_dir() else []
    flags = [*_privileges(), *_unpacking(file, program), "--cleanenv", "--pwd", str(Path.cwd())]
    flags += [word for folder in (*seen, *limits) for word in ("--bind", folder)]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("APPTAINERENV_", "SINGULARITYENV_"))}
    origin = _trial([program, "--silent", "exec", *flags, str(file)], seen, env)
    backends.check_origin(origin, str(file))
    variables[backends.VARIABLE] = f"apptainer: {file.name}, {origin.revision or origin.version}"
    env |= {f"APPTAINERENV_{key}": value for key, value in (launcher | variables).items()}
    return Start([program, "--silent", "exec", *flags, str(file), "firsttouch", *argv], env)


def paths_seen(argv: Sequence[str], variables: dict[str, str]) -> list[str]:
    """Return the paths to bind: the checkout, the current folder, and the paths that the command names.

    All are bound by name, because sites do not mount every home or scratch file system. The folder of a path is
    bound, because the path may be an output or the prefix of several files; if the image has the folder, too (such
    as /etc), only the files are bound. The user's binds stay visible. Raises BadInput for a path with a comma or a
    colon, Apptainer's separators.
    """
    wanted = {paths.ROOT, Path.cwd(), paths.results()}
    texts = [*argv, *(a.partition("=")[2] for a in argv), *variables.values()]
    # Two slashes after a colon belong to a URI: //127.0.0.1 is not a path below a folder //.
    parts = {"/" + part.lstrip("/") for text in texts for part in text.split(":") if part.startswith("/")}
    wanted |= {path for path in map(Path, parts) if not any(path.is_relative_to(p) for p in _bound_by_user())}
    places = {place for path in wanted for place in _places(Path(os.path.normpath(path)))}
    kept = [p for p in sorted(places) if not any(p.is_relative_to(q) for q in places - {p})]
    for path in kept:
        if re.search("[,:]", str(path)):
            raise BadInput(f"{path}: Apptainer cannot bind a path with a comma or a colon in its name")
    return [str(path) for path in kept]


def _bound_by_user() -> list[str]:
    """Return the destinations that a user binds by SOURCE[:DESTINATION[:OPTIONS]] in APPTAINER_BIND."""
    names = (f"{program}_{name}" for program in ("APPTAINER", "SINGULARITY") for name in ("BIND", "BINDPATH"))
    binds = [bind.split(":") for name in names for bind in os.environ.get(name, "").split(",") if bind]
    return [words[1] if len(words) > 1 else words[0] for words in binds]


def _places(path: Path) -> list[Path]:
    """Return the paths to bind for *path*: its nearest existing folder, or files in a folder of the image."""
    folder = next(p for p in (path, *path.parents) if p.is_dir())
    if any(folder.is_relative_to(system) for system in _PROGRAMS):
        return []
    # A bind would hide the image's own folder, or a folder below it.
    if any(Path(system).is_relative_to(folder) for system in _PROGRAMS) or folder == Path("/etc"):
        if folder in {path, *path.parents[1:]}:
            return []
        return [p for p in sorted(folder.glob(f"{glob.escape(path.name)}*")) if not p.is_dir()]
    return [folder]


def _privileges() -> list[str]:
    """Return the options for a root user without all capabilities (in a container)."""
    if os.geteuid() != 0:
        return []
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    mask = int(re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.MULTILINE)[1], 16)  # type: ignore[index]
    return [] if mask >> _CAP_SYS_RESOURCE & 1 else ["--no-privs"]


def _unpacking(image: Path, program: str) -> list[str]:
    """Return the option that lets Apptainer unpack an image that cannot be mounted here."""
    is_mountable = image.is_dir() or os.geteuid() == 0 or setuid(program) or has_fuse()
    return [] if is_mountable else ["--unsquash"]


def _trial(start: Sequence[str], seen: Iterable[str], env: dict[str, str]) -> Origin:
    """Start the image once and return its origin; raises CannotHere (the site) or Missing (the image)."""
    argv = [*start, "/bin/sh", "-c", _TRIAL, "sh", _ORIGIN, *seen]
    try:
        done = run_tool(argv, env=env, timeout=_PATIENCE)
    except TimedOut as error:
        raise RunFailed(f"{start[-1]} did not start within {_PATIENCE} s") from error
    lacking = [line.removeprefix(_LACKING) for line in done.stdout.splitlines() if line.startswith(_LACKING)]
    if done.returncode == 0 and lacking:
        raise CannotHere(f"not mounted in the container: {', '.join(lacking)} (bind path in apptainer.conf)")
    if done.returncode:
        if f"{_ORIGIN}: No such file" in done.stderr:
            raise Missing(f"{start[-1]} is not an image of firsttouch: it lacks {_ORIGIN}")
        plain = re.sub(r"\x1b\[\d*m", "", done.stderr)
        reason = re.sub(r"^(FATAL|ERROR)\s*:\s*", "", (plain.strip() or "it printed nothing").splitlines()[-1])
        raise CannotHere(f"{start[-1]} does not start: {reason}")
    try:
        return msgspec.json.decode(done.stdout, type=Origin)
    except msgspec.DecodeError as error:
        raise Missing(f"{start[-1]} is not an image of firsttouch: it lacks {_ORIGIN}") from error


def setuid(program: str) -> bool:
    """Return whether Apptainer has its set-user-ID program, which can mount images."""
    prefix = Path(program).resolve().parents[1]
    places = prefix.glob("lib*/**/apptainer/bin/starter-suid")
    return any(place.stat().st_mode & 0o4000 and place.stat().st_uid == 0 for place in places)


def has_fuse() -> bool:
    """Return whether this user can mount an image file without privileges."""
    program = shutil.which("squashfuse") or shutil.which("squashfuse_ll")
    return program is not None and os.access("/dev/fuse", os.R_OK | os.W_OK)
