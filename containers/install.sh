#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs firsttouch and its probe from the checkout that contains this script.
#   containers/install.sh PREFIX PYTHON TARGET
# Programs go to PREFIX/bin, their data (systems, datasets, checks) to PREFIX/share/firsttouch. TARGET is archspec's
# name of the instruction set that the rest of PREFIX is built for. The Python packages come from the checkout's wheels/.
set -euo pipefail
umask 022
root=$(cd "$(dirname "$0")/.." && pwd)
prefix=$1 python=$2 target=$3
share=$prefix/share/firsttouch
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { tail -n 20 "$work/log" >&2; echo "install: $1" >&2; exit 1; }

mkdir -p "$share" "$prefix/bin"
tar -C "$root" -cf - --exclude=__pycache__ --exclude=datasets/store --exclude=local.yaml \
    pyproject.toml README.md LICENSE setup src reframe datasets | tar -xf - -C "$share" --no-same-owner

"$python" -m venv "$prefix/venv" >"$work/log" 2>&1 || fail "$python cannot make a virtual environment"
pip=("$prefix/venv/bin/python" -m pip --disable-pip-version-check --no-cache-dir -q)
wheels=$root/wheels
# Install the run-time packages only, not all that are locked.
for what in "editables hatchling scikit-build-core" "$root/probe" "-e ${share}[report]"; do
    # shellcheck disable=SC2086  # words
    "${pip[@]}" install --no-index --find-links "$wheels" --no-build-isolation $what >"$work/log" 2>&1 ||
        fail "firsttouch cannot be installed from $wheels"
done
"$prefix/venv/bin/python" -m firsttouch.execution.build_info "$root" "$share/origin.json" "$target"
# Bytecode that does not depend on the times of files, which each build changes.
find "$prefix" -name __pycache__ -prune -exec rm -rf {} +
"$prefix/venv/bin/python" -m compileall -q --invalidation-mode unchecked-hash "$prefix" >"$work/log" 2>&1 || true
"${pip[@]}" uninstall -y pip setuptools >"$work/log" 2>&1 || fail "pip cannot be uninstalled"
for program in firsttouch firsttouch-probe reframe; do
    ln -sf "../venv/bin/$program" "$prefix/bin/$program"
done
