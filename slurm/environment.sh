# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by every job script: finds firsttouch, the folder of its results and the backend of the programs.
# Slurm runs a copy of the script, so the folder of slurm/ is FIRSTTOUCH_ROOT or that in which sbatch was called: a
# checkout, or a folder made by `firsttouch init`, whose firsttouch.env names the program and the results.
root=${FIRSTTOUCH_ROOT:-${SLURM_SUBMIT_DIR:-$PWD}}
# shellcheck source=/dev/null
if [[ -r $root/firsttouch.env ]]; then . "$root/firsttouch.env"; fi
bin=${FIRSTTOUCH_BIN:-$root/.venv/bin}
firsttouch=(firsttouch)
# Part of every error message: all variables at once, because each failed job reports one error only.
folders="FIRSTTOUCH_ROOT names the checkout; FIRSTTOUCH_OUT (results) and FIRSTTOUCH_DATA (datasets) name your own folders"
if [[ -x $bin/firsttouch ]]; then
    if ! "$bin/firsttouch" --version &>/dev/null; then
        echo "firsttouch: error: $bin/firsttouch does not run here: was it moved? In a checkout run 'make setup';" \
            "$folders" >&2
        exit 3
    fi
    out=${FIRSTTOUCH_OUT:-$root/reports/out}
    if ! mkdir -p "$out" 2>/dev/null || [[ ! -w $out ]]; then
        echo "firsttouch: error: results cannot be written to $out: $folders" >&2
        exit 3
    fi
    export PATH="$bin:$PATH"
elif ! command -v firsttouch >/dev/null; then
    echo "firsttouch: error: $bin/firsttouch does not exist: call sbatch in the checkout after 'make setup', or in a" \
        "folder made by 'firsttouch init'; $folders" >&2
    exit 3
fi
# BACKEND=apptainer|spack: the programs come from an image (FIRSTTOUCH_IMAGE) or a view (FIRSTTOUCH_VIEW).
# shellcheck disable=SC2034  # used by the scripts
backend=(${BACKEND:+--backend "$BACKEND"})
# One task per host, without srun's binding: numactl places the threads. A host that dies ends no other task.
if ((${SLURM_JOB_NUM_NODES:-1} > 1)); then
    firsttouch=(srun --ntasks-per-node=1 --whole --cpu-bind=none --no-kill --kill-on-bad-exit=0 --wait=0 "${firsttouch[@]}")
fi
