#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds programs with Spack in the %post of the build image (build.def), in one folder for each run image.
#   containers/spack.sh PROFILE TARGET IMAGE=PACKAGE:PACKAGE...
# PROFILE is one of spack-env/profiles, or none: the programs are then Debian packages, and the folders stay empty.
# Spack, its recipes and the mirror of sources are bound at /mnt. Only the profile online uses the network.
set -euo pipefail
profile=$1 target=$2
shift 2
for image; do mkdir -p "/opt/programs/${image%%=*}"; done
if [[ $profile == none ]]; then exit; fi

checkout=$(cd "$(dirname "$0")/.." && pwd)
offline=(unshare --net)
if [[ $profile == online ]]; then offline=(); fi
wanted=$(printf '%s\n' "${@#*=}" | tr ':' '\n' | sort -u | paste -sd,)
# Spack's solver, and the libraries of stack.py.
python3 -m venv /opt/solver
/opt/solver/bin/pip --disable-pip-version-check install -q --no-index --find-links "$checkout/wheels" \
    clingo PyYAML archspec
export SPACK_ROOT=/mnt/spack SPACK_PACKAGES=/mnt/recipes SPACK_PYTHON=/opt/solver/bin/python
stack() { # command [word...]
    local command=$1
    shift
    "${offline[@]}" "$SPACK_PYTHON" "$checkout/spack-env/stack.py" "$command" --profile "$profile" \
        --target "$target" --mirror /mnt/mirror --prefix /opt/spack --only "$wanted" "$@"
}
stack install
for image; do
    folder=/opt/programs/${image%%=*}
    IFS=: read -ra packages <<<"${image#*=}"
    stack spack -- python "$checkout/spack-env/copy_programs.py" "$folder" "${packages[@]}"
    cp "/opt/spack/$profile-$target/spack.lock" "$folder/"
done
