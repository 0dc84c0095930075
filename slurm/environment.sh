# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What every job script here begins with: finds the checkout, its virtual environment and the container.
# The script itself was copied away by Slurm, so the checkout is where sbatch was called, or FIRSTTOUCH_ROOT.
root=${FIRSTTOUCH_ROOT:-${SLURM_SUBMIT_DIR:-$PWD}}
firsttouch=(firsttouch)
if [[ -x $root/.venv/bin/firsttouch ]]; then
    export PATH="$root/.venv/bin:$PATH"
elif ! command -v firsttouch >/dev/null; then
    echo "firsttouch: no $root/.venv: call sbatch in the checkout after 'make setup', or set FIRSTTOUCH_ROOT" >&2
    exit 3
fi
case ${BACKEND:-native} in
    native) ;;
    apptainer)
        image=${FIRSTTOUCH_IMAGE:-$root/containers/firsttouch.sif}
        command -v apptainer >/dev/null || { echo "firsttouch: BACKEND=apptainer: no apptainer on this host" >&2; exit 3; }
        [[ -e $image ]] || { echo "firsttouch: BACKEND=apptainer: no image $image (FIRSTTOUCH_IMAGE)" >&2; exit 3; }
        firsttouch=(apptainer exec --bind "$root" "$image" firsttouch)
        ;;
    *) echo "firsttouch: BACKEND is native or apptainer, not '$BACKEND'" >&2; exit 2 ;;
esac
# One task per host. numactl alone places the threads: srun would bind them a second time.
if ((${SLURM_JOB_NUM_NODES:-1} > 1)); then
    firsttouch=(srun --ntasks-per-node=1 --whole --cpu-bind=none --kill-on-bad-exit=0 --wait=0 "${firsttouch[@]}")
fi
