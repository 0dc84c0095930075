# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What every job script here begins with: finds the checkout, its virtual environment and what programs come from.
# The script itself was copied away by Slurm, so the checkout is where sbatch was called, or FIRSTTOUCH_ROOT.
root=${FIRSTTOUCH_ROOT:-${SLURM_SUBMIT_DIR:-$PWD}}
firsttouch=(firsttouch)
if [[ -x $root/.venv/bin/firsttouch ]]; then
    export PATH="$root/.venv/bin:$PATH"
elif ! command -v firsttouch >/dev/null; then
    echo "firsttouch: no $root/.venv: call sbatch in the checkout after 'make setup', or set FIRSTTOUCH_ROOT" >&2
    exit 3
fi
# BACKEND=apptainer|spack: the programs of an image (FIRSTTOUCH_IMAGE) or of a view (FIRSTTOUCH_VIEW).
# shellcheck disable=SC2034  # the scripts use it
backend=(${BACKEND:+--backend "$BACKEND"})
# One task per host. numactl alone places the threads: srun would bind them a second time.
if ((${SLURM_JOB_NUM_NODES:-1} > 1)); then
    firsttouch=(srun --ntasks-per-node=1 --whole --cpu-bind=none --kill-on-bad-exit=0 --wait=0 "${firsttouch[@]}")
fi
