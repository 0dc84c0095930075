# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What every job script here begins with: finds the checkout, its virtual environment and what programs come from.
# The script itself was copied away by Slurm, so the checkout is where sbatch was called, or FIRSTTOUCH_ROOT.
root=${FIRSTTOUCH_ROOT:-${SLURM_SUBMIT_DIR:-$PWD}}
firsttouch=(firsttouch)
# What the first message has to name: a job's author sees no second one.
folders="FIRSTTOUCH_ROOT names the checkout; FIRSTTOUCH_OUT (results) and FIRSTTOUCH_DATA (datasets) name folders of yours"
if [[ -x $root/.venv/bin/firsttouch ]]; then
    if ! "$root/.venv/bin/firsttouch" --version &>/dev/null; then
        echo "firsttouch: error: $root/.venv does not run here: was it moved? Call 'make setup' in $root; $folders" >&2
        exit 3
    fi
    out=${FIRSTTOUCH_OUT:-$root/reports/out}
    if ! mkdir -p "$out" 2>/dev/null || [[ ! -w $out ]]; then
        echo "firsttouch: error: results cannot be written to $out: $folders" >&2
        exit 3
    fi
    export PATH="$root/.venv/bin:$PATH"
elif ! command -v firsttouch >/dev/null; then
    echo "firsttouch: error: there is no $root/.venv: call sbatch in the checkout after 'make setup'; $folders" >&2
    exit 3
fi
# BACKEND=apptainer|spack: the programs of an image (FIRSTTOUCH_IMAGE) or of a view (FIRSTTOUCH_VIEW).
# shellcheck disable=SC2034  # the scripts use it
backend=(${BACKEND:+--backend "$BACKEND"})
# One task per host. numactl alone places the threads: srun would bind them a second time.
if ((${SLURM_JOB_NUM_NODES:-1} > 1)); then
    firsttouch=(srun --ntasks-per-node=1 --whole --cpu-bind=none --kill-on-bad-exit=0 --wait=0 "${firsttouch[@]}")
fi
