#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds all programs with Spack, in one environment for a profile and a target.

  online   a site with internet: downloads recipes and sources from their publishers
  airgap   a site without: SPACK_PACKAGES is a clone of the recipes, --mirror a directory filled by `mirror`
  debian   a developer's Debian 12: like airgap, but reuses the distribution's packages instead of building them

SPACK_ROOT is a clone of Spack at tag v1.1.0, SPACK_PACKAGES a clone of spack-packages at tag v2026.03.0. Spack
needs the Python package clingo. SPACK_PYTHON is an interpreter that has it (default: the one that runs this).

To spack.yaml this adds the profile, the target, and the folders for programs and sources. Locks of all packages
are kept in locks/ for Debian 12, the system of the images; on another system Spack decides again.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import yaml
from sources import LOCK, Source, Wrong, fill, fill_wheels, read, replacing, write

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PROFILES = ("online", "airgap", "debian")
SPACK = "1.1"
#: The operating system of the locks that are kept, as Spack calls it.
LOCKED_SYSTEM = "debian12"
#: The packages of this checkout, with their versions.
OURS = {"firsttouch": "1.0.0", "firsttouch-probe": "1.0.0"}
#: Packages without a source: parts of Spack itself, and this checkout.
NO_SOURCE = {"compiler-wrapper", "gcc-runtime", "python-venv", *OURS}
#: Placeholder for the path of this checkout in the lock files that are kept.
CHECKOUT = "$FIRSTTOUCH_ROOT"
EXAMPLES = """
examples:
  spack-env/stack.py mirror /data/mirror                      # with internet: download and verify
  spack-env/stack.py mirror /data/mirror --from /media/usb    # tarballs from a folder, under any name
  spack-env/stack.py install --profile airgap --mirror /data/mirror --system amd-opteron
  spack-env/stack.py spack --profile debian -- find -l        # any command of Spack on the environment
  spack-env/stack.py install --profile debian --only bwa,snap-berkeley
  spack-env/stack.py install --only bowtie-lock,bowtie2-lock      # aligners with a lock of each type
  firsttouch characterize --backend spack                     # the checks with the programs of its view"""


def main() -> int:
    """Run one command. Return Spack's exit status, 2 for bad input, or 3 for a missing requirement."""
    args = _parser().parse_args()
    try:
        return int(args.run(args))
    except Wrong as error:
        print(f"stack: error: {error}", file=sys.stderr)
        return error.status


def _parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    for name, run, text in (
        ("concretize", concretize, "concretize every package, and write the profile's lock file"),
        ("install", install, "concretize if necessary, and build all packages or those named"),
        ("audit", audit, "check this project's recipes with Spack"),
        ("lock", lock, "add the sources of the concretized packages to sources.lock"),
        ("spack", spack, "run another command of Spack on the environment (after --)"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("--profile", choices=PROFILES, default="online", help="default: online")
        chosen = command.add_mutually_exclusive_group()
        chosen.add_argument("--system", help="build for the hosts of this system (targets.yaml)")
        chosen.add_argument("--target", help="build for this target, by archspec's name")
        command.add_argument("--mirror", type=Path, help="directory of sources (default: .cache/mirror)")
        command.add_argument("--prefix", type=Path, help="installation folder (default: .cache/spack)")
        command.add_argument(
            "--only", type=names, default=[], metavar="NAME,...", help="only these, also of optional.yaml"
        )
        command.add_argument(
            "--site", type=Path, metavar="FILE", help="packages.yaml with the packages that this site already has"
        )
        command.add_argument("--locks", type=Path, default=HERE, help="folder of the locks (default: spack-env/)")
        command.add_argument("words", nargs="*", metavar="WORD", help="packages, or arguments of Spack")
        command.set_defaults(run=run)
        if name == "lock":
            command.add_argument("--check", action="store_true", help="check all locks, without Spack")
    command = commands.add_parser(
        "mirror", help="fill a directory with the sources of sources.lock and Python's wheels, and verify them"
    )
    command.add_argument("directory", type=Path)
    command.add_argument(
        "--from", dest="source", type=Path, help="take the files from this directory instead of the network"
    )
    command.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="only this package (repeatable)"
    )
    command.set_defaults(run=mirror)
    return top


def mirror(args: argparse.Namespace) -> int:
    """Fill a directory with all sources, and with the wheels of the Python packages unless --only is given."""
    status = fill(LOCK, args.directory, args.source, args.only, say=_say)
    if not args.only:
        fill_wheels(ROOT, args.directory, args.source, say=_say)
    return status


def concretize(args: argparse.Namespace) -> int:
    """Concretize, and keep the lock if it is of all packages on the system that locks are kept for."""
    folder = environment(args)
    status = _spack(args, folder, ["concretize", "--force"])
    if status == 0 and host_system() == LOCKED_SYSTEM and not args.site and not _part(args):
        content = json.loads((folder / "spack.lock").read_text(encoding="utf-8"))
        with replacing(_kept(args)) as partial:
            partial.write_text(lock_text(content).replace(str(ROOT), CHECKOUT), encoding="utf-8")
        _say(f"wrote {_kept(args)}")
    return status


def lock_text(content: dict[str, Any]) -> str:
    """Return a lock as JSON with one package a line."""

    def dense(value: Any) -> str:
        return json.dumps(value, separators=(",", ":"))

    fields = {key: value for key, value in content.items() if key != "concrete_specs"}
    lines = [f"{dense(key)}:{dense(node)}" for key, node in content["concrete_specs"].items()]
    return dense(fields)[:-1] + ',"concrete_specs":{\n' + ",\n".join(lines) + "\n}}\n"


def install(args: argparse.Namespace) -> int:
    """Install all packages, or the named ones with their dependencies."""
    if args.profile == "debian" and (lacking := _lacking()):
        message = f"the profile debian needs packages of Debian: apt-get install {' '.join(lacking)}"
        if not args.only:
            raise Wrong(message, status=3)
        _say(f"for all programs, {message}")
    folder = environment(args)
    if not (folder / "spack.lock").exists() and (status := _spack(args, folder, ["concretize"])):
        return status
    named = ["--only-concrete", *args.words, *args.only]
    status = _spack(args, folder, ["install", "--fail-fast", "--show-log-on-error", *named])
    if status == 0:
        _say(f"programs: {folder / 'view' / 'bin'}")
    return status


def _lacking() -> list[str]:
    """Return the Debian packages that the profile debian uses and this host lacks."""
    packages = tomllib.loads((ROOT / "containers" / "packages.toml").read_text(encoding="utf-8"))["packages"]
    wanted = [*packages["spack-build"], "cmake", "gcc", "make", "pkgconf", "python3"]
    listed = subprocess.run(
        ["dpkg-query", "-W", "-f", "${db:Status-Status} ${Package} ${Provides}\n"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    installed = {
        w.strip(",") for line in listed.splitlines() if line.startswith("installed ") for w in line.split()
    }
    return sorted(set(wanted) - installed)


def audit(args: argparse.Namespace) -> int:
    """Check this project's recipes with Spack's audit."""
    recipes = sorted(p.parent.name for p in (HERE / "repo").rglob("package.py"))
    return _spack(
        args, environment(args), ["audit", "packages", *(f"firsttouch.{n}" for n in map(_dashed, recipes))]
    )


def lock(args: argparse.Namespace) -> int:
    """Add the concretized packages' sources to sources.lock; or check all locks."""
    if args.check:
        problems = check_locks(args.locks)
        for problem in problems:
            _say(problem)
        return 1 if problems else 0
    file = args.locks / LOCK.name
    folder = environment(args)
    if not (folder / "spack.lock").exists():
        raise Wrong("nothing is concretized: run stack.py concretize first")
    fresh = folder / LOCK.name
    if status := _spack(args, folder, ["python", str(HERE / "list_sources.py"), str(fresh)]):
        return status
    needed = {(n["name"], n["version"]) for n in _nodes(args.locks)}
    sources = {s for f in (file, fresh) if f.exists() for s in read(f) if (s.name, s.version) in needed}
    write(file, sorted(sources, key=Source.order))
    _say(f"{file}: {len(sources)} sources")
    return 0


def check_locks(folder: Path) -> list[str]:
    """Return what is wrong with the locks in *folder*: missing, stale, or without a source of a package."""
    problems = []
    wanted = {spec.split()[0] for spec in _described()[0]["specs"]}
    targets = {*_targets()["systems"].values(), *_targets()["default"].values()}
    files = {
        (kind, name): folder / "locks" / f"{kind}-{name}.lock" for kind in ("source", "debian") for name in targets
    }
    unexpected = sorted(set((folder / "locks").glob("*")) - set(files.values()))
    problems += [f"{file}: not the lock of a target in targets.yaml" for file in unexpected]
    for (_, name), file in sorted(files.items()):
        if not file.exists():
            problems.append(f"{file}: missing: run stack.py concretize --target {name}")
            continue
        content = json.loads(file.read_text(encoding="utf-8"))
        roots = {root["spec"].split()[0] for root in content["roots"]}
        expected = {spec for spec in wanted if spec.split("@")[0] not in left_out(name)}
        if roots != expected:
            problems.append(f"{file}: other packages than spack.yaml: {', '.join(sorted(roots ^ expected))}")
        nodes = content["concrete_specs"]
        edges = {d["hash"] for n in nodes.values() for d in n.get("dependencies", [])}
        if lost := {*edges, *(root["hash"] for root in content["roots"])} - set(nodes):
            problems.append(f"{file}: not complete: {', '.join(sorted(lost))}")
        others = {n["name"] for n in nodes.values() if "external" not in n and _target_of(n) != name}
        if others:
            problems.append(f"{file}: not for {name}: {', '.join(sorted(map(str, others)))}")
    locked = {(s.name, s.version) for s in read(folder / LOCK.name)}
    needed = {(n["name"], n["version"]) for n in _nodes(folder)}
    problems += [f"{LOCK.name}: no source of {n} {v}" for n, v in sorted(needed - locked)]
    problems += [f"{LOCK.name}: no lock has {n} {v}" for n, v in sorted(locked - needed)]
    return problems


def _target_of(node: dict[str, Any]) -> str:
    """Return the target of a package in a lock: generic ones are names, others tables."""
    stated = node["arch"]["target"]
    return str(stated if isinstance(stated, str) else stated["name"])


def _nodes(folder: Path) -> list[dict[str, Any]]:
    """Return the packages with a source of all kept locks."""
    contents = [json.loads(file.read_text(encoding="utf-8")) for file in sorted((folder / "locks").glob("*.lock"))]
    nodes = [node for content in contents for node in content["concrete_specs"].values()]
    return [node for node in nodes if "external" not in node and node["name"] not in NO_SOURCE]


def spack(args: argparse.Namespace) -> int:
    """Run any command of Spack on the environment."""
    if not args.words:
        raise Wrong("the command of Spack is missing: give it after --")
    return _spack(args, environment(args), args.words)


def environment(args: argparse.Namespace) -> Path:
    """Write the environment of *args* and return its folder. An unchanged environment is not written again."""
    target_name = target(args)
    content, optional = _described()
    without = left_out(target_name)
    specs = content["specs"] + (optional if _part(args) else [])
    available = {spec.split("@")[0] for spec in content["specs"] + optional}
    if unknown := set(args.only) - available:
        files = "spack.yaml and optional.yaml"
        raise Wrong(f"not in {files}: {', '.join(sorted(unknown))} (there are {', '.join(sorted(available))})")
    asked = set(args.only) or {spec.split("@")[0] for spec in specs}
    for name in sorted(asked & set(without)):
        _say(f"without {name} on {family(target_name)}: {without[name]}")
    args.only = [name for name in args.only if name not in without]
    chosen = (asked if _part(args) else {spec.split("@")[0] for spec in specs}) - set(without)
    # Spack allows a target of another architecture only if the spec names it.
    content["specs"] = [f"{spec} target={target_name}" for spec in specs if spec.split("@")[0] in chosen]
    prefix = (args.prefix or ROOT / ".cache" / "spack").absolute()
    folder = prefix / f"{args.profile}-{target_name}"
    content["include"] = [*_site(args.site), str(HERE / "profiles" / args.profile)]
    content["packages"]["all"]["require"] = [f"target={target_name}"]
    content["view"] = {"default": {"root": str(folder / "view"), "link": "run"}}
    if "firsttouch" in chosen:
        content["develop"] = {n: {"path": str(ROOT), "spec": f"{n}@={v}"} for n, v in OURS.items()}
    content["config"] |= {
        "install_tree": {"root": str(prefix / "store")},
        "build_stage": [str(prefix / "stage")],
        "source_cache": str(prefix / "sources"),
        "misc_cache": str(prefix / "misc"),
    }
    folder.mkdir(parents=True, exist_ok=True)
    # Spack may edit its spack.yaml, so a copy says what the environment was made from.
    text = "# Made by spack-env/stack.py: changes here are lost.\n" + yaml.safe_dump(
        {"spack": content}, sort_keys=False
    )
    copy = folder / "made-from.yaml"
    if not copy.exists() or copy.read_text(encoding="utf-8") != text:
        (folder / "spack.yaml").write_text(text, encoding="utf-8")
        (folder / "spack.lock").unlink(missing_ok=True)
        usable = not _part(args) and not args.site and host_system() == LOCKED_SYSTEM
        if usable and _kept(args).exists():
            kept = _kept(args).read_text(encoding="utf-8").replace(CHECKOUT, str(ROOT))
            (folder / "spack.lock").write_text(kept, encoding="utf-8")
        copy.write_text(text, encoding="utf-8")
    return folder


def _described() -> tuple[dict[str, Any], list[str]]:
    """Return the environment of spack.yaml, and the specs of optional.yaml."""
    content = yaml.safe_load((HERE / "spack.yaml").read_text(encoding="utf-8"))["spack"]
    return content, yaml.safe_load((HERE / "optional.yaml").read_text(encoding="utf-8"))["specs"]


def _part(args: argparse.Namespace) -> bool:
    """Return whether --only names a package outside of the stack, which locks do not contain."""
    return bool(set(args.only) - {spec.split("@")[0] for spec in _described()[0]["specs"]})


def _kept(args: argparse.Namespace) -> Path:
    """Return the kept lock of a profile and target, which makes all sites build the same packages."""
    kind = "debian" if args.profile == "debian" else "source"
    return Path(args.locks, "locks", f"{kind}-{target(args)}.lock")


def host_system() -> str:
    """Return the operating system of this host, as Spack calls it: ``debian12``."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return "unknown"
    return release["ID"] + release.get("VERSION_ID", "").split(".")[0]


def names(text: str) -> list[str]:
    """Return the names of a comma-separated list."""
    return [name for name in text.split(",") if name]


def _site(file: Path | None) -> list[str]:
    """Return the files of a site's own configuration; raises Wrong if *file* is not a packages.yaml."""
    if file is None:
        return []
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise Wrong(f"{file}: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict) or list(content) != ["packages"]:
        raise Wrong(f"{file}: not one section 'packages:' with externals, as `spack external find` writes it")
    return [str(file.absolute())]


def target(args: argparse.Namespace) -> str:
    """Return the target of --target or --system, or the default of this host's architecture."""
    if args.target:
        return str(args.target)
    systems, default = _targets()["systems"], _targets()["default"]
    if args.system:
        if args.system not in systems:
            raise Wrong(f"targets.yaml has no target for system '{args.system}': add it, or give --target")
        return str(systems[args.system])
    machine = platform.machine()
    if machine not in default:
        raise Wrong(f"targets.yaml has no default for {machine}: give --target")
    return str(default[machine])


def _targets() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((HERE / "targets.yaml").read_text(encoding="utf-8"))
    return content


def left_out(name: str) -> dict[str, str]:
    """Return the reason for each package that cannot be built for a target."""
    content: dict[str, str] = _targets()["leave_out"].get(family(name), {})
    return content


def family(name: str) -> str:
    """Return the architecture of a target; raises Wrong if archspec does not know the target."""
    import archspec.cpu  # noqa: PLC0415  (`mirror` runs without archspec)

    if name not in archspec.cpu.TARGETS:
        raise Wrong(f"archspec does not know the target '{name}'")
    return str(archspec.cpu.TARGETS[name].family)


def _dashed(module: str) -> str:
    return module.replace("_", "-")


def check_spack(profile: str) -> Path:
    """Return Spack's program; raises Wrong if its clone, or the clone of the recipes, is missing."""
    program = Path(os.environ.get("SPACK_ROOT", ""), "bin", "spack")
    if not os.environ.get("SPACK_ROOT") or not program.is_file():
        raise Wrong("SPACK_ROOT is not a clone of Spack (git clone -b v1.1.0 …/spack)", status=3)
    if profile != "online" and not Path(os.environ.get("SPACK_PACKAGES", ""), "repos").is_dir():
        raise Wrong("SPACK_PACKAGES is not a clone of spack-packages (git clone -b v2026.03.0 …)", status=3)
    return program


def _spack(args: argparse.Namespace, folder: Path, words: list[str]) -> int:
    """Run Spack on the environment, without the configuration of this user or host."""
    program = check_spack(args.profile)
    prefix = folder.parent
    python = os.environ.get("SPACK_PYTHON", sys.executable)
    # Without clingo, Spack would first build or download it.
    solver = subprocess.run([python, "-c", "import clingo"], capture_output=True, check=False).returncode == 0
    user = prefix / "config"
    user.mkdir(parents=True, exist_ok=True)
    (user / "bootstrap.yaml").write_text(f"bootstrap: {{enable: {str(not solver).lower()}}}\n", encoding="utf-8")
    env = {
        **os.environ,
        "SPACK_PYTHON": python,
        "SPACK_USER_CONFIG_PATH": str(user),
        "SPACK_SYSTEM_CONFIG_PATH": str(prefix / "no-config"),
        "SPACK_USER_CACHE_PATH": str(prefix / "cache"),
        "FIRSTTOUCH_MIRROR": str(_mirror(args)),
    }
    version = subprocess.run([program, "--version"], env=env, capture_output=True, text=True, check=False).stdout
    if not version.startswith(f"{SPACK}."):
        actual = version.split(" ")[0].strip() or "that does not run"
        raise Wrong(f"{program} is Spack {actual}, not {SPACK}", status=3)
    # Spack would write the compilers that it detects into the environment.
    if args.profile != "debian" and not (user / "packages.yaml").exists():
        find = [program, "-C", HERE / "profiles" / args.profile, "compiler", "find", "--scope", "user"]
        subprocess.run(find, env=env, stdout=subprocess.DEVNULL, check=False)
    return subprocess.run([program, "-e", folder, *words], env=env, check=False).returncode


def _mirror(args: argparse.Namespace) -> Path:
    folder: Path = args.mirror or ROOT / ".cache" / "mirror"
    return folder.absolute()


def _say(text: str) -> None:
    print(f"stack: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
