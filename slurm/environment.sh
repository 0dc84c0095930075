# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by every job script: finds the checkout, its virtual environment and the backend of the programs.
# Slurm runs a copy of the script, so the checkout is FIRSTTOUCH_ROOT or the folder in which sbatch was called.
root=${FIRSTTOUCH_ROOT:-${SLURM_SUBMIT_DIR:-$PWD}}
firsttouch=(firsttouch)
# Part of every error message: all variables at once, because each failed job reports one error only.
folders="FIRSTTOUCH_ROOT names the checkout; FIRSTTOUCH_OUT (results) and FIRSTTOUCH_DATA (datasets) name your own folders"
if [[ -x $root/.venv/bin/firsttouch ]]; then
    if ! "$root/.venv/bin/firsttouch" --version &>/dev/null; then
        echo "firsttouch: error: $root/.venv does not run here: was it moved? Run 'make setup' in $root; $folders" >&2
        exit 3
    fi
    out=${FIRSTTOUCH_OUT:-$root/reports/out}
    if ! mkdir -p "$out" 2>/dev/null || [[ ! -w $out ]]; then
        echo "firsttouch: error: results cannot be written to $out: $folders" >&2
        exit 3
    fi
    export PATH="$root/.venv/bin:$PATH"
elif ! command -v firsttouch >/dev/null; then
    echo "firsttouch: error: $root/.venv does not exist: call sbatch in the checkout after 'make setup'; $folders" >&2
    exit 3
fi
# BACKEND=apptainer|spack: the programs come from an image (FIRSTTOUCH_IMAGE) or a view (FIRSTTOUCH_VIEW).
# shellcheck disable=SC2034  # used by the scripts
backend=(${BACKEND:+--backend "$BACKEND"})
# One task per host, without srun's binding: numactl places the threads.
if ((${SLURM_JOB_NUM_NODES:-1} > 1)); then
    firsttouch=(srun --ntasks-per-node=1 --whole --cpu-bind=none --kill-on-bad-exit=0 --wait=0 "${firsttouch[@]}")
fi
