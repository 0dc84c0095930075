#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds all programs with Spack, in one environment for a profile and a target.

  online   a site with internet: downloads recipes and sources from their publishers
  airgap   a site without: SPACK_PACKAGES is a clone of the recipes, --mirror a directory filled by `mirror`
  debian   a developer's Debian 12: like airgap, but reuses the distribution's packages instead of building them

SPACK_ROOT is a clone of Spack at tag v1.1.0, SPACK_PACKAGES a clone of spack-packages at tag v2026.03.0. Spack
needs the Python package clingo. SPACK_PYTHON is an interpreter that has it (default: the one that runs this).
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from sources import LOCK, Wrong, fill, replacing

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PROFILES = ("online", "airgap", "debian")
SPACK = "1.1"
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
        ("lock", lock, "write sources.lock from the concretized packages"),
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
        command.add_argument(
            "--locks", type=Path, default=HERE, help="folder of the lock files (default: spack-env/)"
        )
        command.add_argument("words", nargs="*", metavar="WORD", help="packages, or arguments of Spack")
        command.set_defaults(run=run)
    command = commands.add_parser(
        "mirror", help="fill a directory with the sources of sources.lock, and verify them"
    )
    command.add_argument("directory", type=Path)
    command.add_argument(
        "--from", dest="source", type=Path, help="take the files from this directory instead of the network"
    )
    command.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="only this package (repeatable)"
    )
    command.set_defaults(run=lambda a: fill(LOCK, a.directory, a.source, a.only, say=_say))
    return top


def concretize(args: argparse.Namespace) -> int:
    """Concretize, and keep the lock file with the profile."""
    folder = environment(args)
    status = _spack(args, folder, ["concretize", "--force"])
    if status == 0 and (kept := _kept(args)):
        text = (folder / "spack.lock").read_text(encoding="utf-8").replace(str(ROOT), CHECKOUT)
        with replacing(kept) as partial:
            partial.write_text(text, encoding="utf-8")
        _say(f"wrote {kept}")
    return status


def install(args: argparse.Namespace) -> int:
    """Install all packages, or the named ones with their dependencies."""
    folder = environment(args)
    if not (folder / "spack.lock").exists() and (status := concretize(args)):
        return status
    named = ["--only-concrete", *args.words]
    status = _spack(args, folder, ["install", "--fail-fast", "--show-log-on-error", *named])
    if status == 0:
        _say(f"programs: {folder / 'view' / 'bin'}")
    return status


def audit(args: argparse.Namespace) -> int:
    """Check this project's recipes with Spack's audit."""
    recipes = sorted(p.parent.name for p in (HERE / "repo").rglob("package.py"))
    return _spack(
        args, environment(args), ["audit", "packages", *(f"firsttouch.{n}" for n in map(_dashed, recipes))]
    )


def lock(args: argparse.Namespace) -> int:
    """Write sources.lock: version, SHA-256 and upstream URL of each source of the concretized packages."""
    return _spack(args, environment(args), ["python", str(HERE / "list_sources.py"), str(args.locks / LOCK.name)])


def spack(args: argparse.Namespace) -> int:
    """Run any command of Spack on the environment."""
    if not args.words:
        raise Wrong("the command of Spack is missing: give it after --")
    return _spack(args, environment(args), args.words)


def environment(args: argparse.Namespace) -> Path:
    """Write the environment of *args* and return its folder. An unchanged environment is not written again."""
    target_name = target(args)
    described = yaml.safe_load((HERE / "spack.yaml").read_text(encoding="utf-8"))
    content = described["spack"]
    without = left_out(target_name)
    default = {spec.split("@")[0] for spec in content["specs"]}
    specs = content["specs"] + yaml.safe_load((HERE / "optional.yaml").read_text(encoding="utf-8"))["specs"]
    available = {spec.split("@")[0] for spec in specs}
    if unknown := set(args.only) - available:
        files = "spack.yaml and optional.yaml"
        raise Wrong(f"not in {files}: {', '.join(sorted(unknown))} (there are {', '.join(sorted(available))})")
    asked = set(args.only) or default
    chosen = asked - set(without)
    content["specs"] = [spec for spec in specs if spec.split("@")[0] in chosen]
    for name in sorted(asked & set(without)):
        _say(f"without {name} on {family(target_name)}: {without[name]}")
    prefix = (args.prefix or ROOT / ".cache" / "spack").absolute()
    folder = prefix / f"{args.profile}-{target_name}"
    content["include"] = [*_site(args.site), str(HERE / "profiles" / args.profile)]
    content["packages"]["all"]["require"] = [f"target={target_name}"]
    content["view"] = {"default": {"root": str(folder / "view"), "link": "roots"}}
    if "firsttouch" in chosen:
        content["develop"] = {"firsttouch": {"path": str(ROOT), "spec": "firsttouch@=0.1.0"}}
    content["config"] |= {
        "install_tree": {"root": str(prefix / "store")},
        "build_stage": [str(prefix / "stage")],
        "source_cache": str(prefix / "sources"),
        "misc_cache": str(prefix / "misc"),
    }
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "spack.yaml"
    text = "# Made by spack-env/stack.py: changes here are lost.\n" + yaml.safe_dump(described, sort_keys=False)
    if not file.exists() or file.read_text(encoding="utf-8") != text:
        file.write_text(text, encoding="utf-8")
        (folder / "spack.lock").unlink(missing_ok=True)
        if (lock_file := _kept(args)) and lock_file.exists():
            lock_text = lock_file.read_text(encoding="utf-8").replace(CHECKOUT, str(ROOT))
            (folder / "spack.lock").write_text(lock_text, encoding="utf-8")
    return folder


def _kept(args: argparse.Namespace) -> Path | None:
    """Return the kept lock file of a profile and target, which makes all sites build the same packages.

    Return None for a part of the packages and for a site with its own packages.
    """
    if args.only or args.site:
        return None
    return Path(args.locks, "profiles", args.profile, f"spack-{target(args)}.lock")


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
    own = prefix / "config"
    own.mkdir(parents=True, exist_ok=True)
    (own / "bootstrap.yaml").write_text(f"bootstrap: {{enable: {str(not solver).lower()}}}\n", encoding="utf-8")
    env = {
        **os.environ,
        "SPACK_PYTHON": python,
        "SPACK_DISABLE_LOCAL_CONFIG": "1",
        "SPACK_USER_CACHE_PATH": str(prefix / "cache"),
        "FIRSTTOUCH_ROOT": str(ROOT),
        "FIRSTTOUCH_MIRROR": str((args.mirror or ROOT / ".cache" / "mirror").absolute()),
    }
    version = subprocess.run([program, "--version"], env=env, capture_output=True, text=True, check=False).stdout
    if not version.startswith(f"{SPACK}."):
        actual = version.split(" ")[0].strip() or "that does not run"
        raise Wrong(f"{program} is Spack {actual}, not {SPACK}", status=3)
    return subprocess.run([program, "-C", own, "-e", folder, *words], env=env, check=False).returncode


def _say(text: str) -> None:
    print(f"stack: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
