# SPDX-License-Identifier: Apache-2.0
# firsttouch: `make help` lists the targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help
BIN := .venv/bin
SYSTEM ?= local
DATASET ?= lambda
ALIGNER ?=
BACKEND ?=
IMAGE ?=
SUITE ?=
BENCH ?=
export CMD
# What mypy knows of unchanged sources is the same in all checkouts.
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/firsttouch-tests/mypy
export MYPY_CACHE_DIR = $(shell mkdir -p "$(CACHE)" 2>/dev/null && test -w "$(CACHE)" && echo "$(CACHE)")
# Tests start thousands of Python processes, some on emulated processors: bytecode is kept, as when installed.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup dev release run images study-programs study blocked-reads test suites compiled-tests lint bench docs paper dist emulate lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

setup: ## install missing Debian packages and .venv (a second run changes nothing)
	@setup/setup.sh run

dev: ## also the Python packages of linters, documents and tests
	@setup/setup.sh dev

# If the programs come from an image or a Spack view, only .venv and the probe are needed on the host.
run: ## the main job: characterize this host, report in reports/out/latest (SYSTEM=, DATASET=, ALIGNER=|all, BACKEND=apptainer|spack)
	@setup/setup.sh $(if $(filter apptainer spack,$(BACKEND)),venv,run)
	@$(BIN)/firsttouch characterize --system $(SYSTEM) --dataset $(DATASET) $(if $(ALIGNER),--aligner $(ALIGNER)) \
	    $(if $(BACKEND),--backend $(BACKEND)) $(if $(IMAGE),--image $(IMAGE))

images: setup ## the Apptainer images of containers/, with checksums and lists of packages (IMAGE=aligners|membench|firsttouch; SPACK=online|airgap|debian MIRROR=)
	@$(BIN)/python containers/images.py $(IMAGE) $(if $(SPACK),--spack $(SPACK)) $(if $(MIRROR),--mirror $(MIRROR))

study-programs: ## Bowtie and Bowtie 2 with a lock of each type, in .cache/study-programs (OUT=, PROGRAMS="…", RELEASE=, SOURCE=)
	@setup/setup.sh study
	@$(BIN)/python studies/locks/lock_variants.py $(PROGRAMS) $(if $(OUT),--output "$(OUT)") $(if $(RELEASE),--release $(RELEASE)) \
	    $(if $(SOURCE),--source "$(SOURCE)")

# All suites run in one session: while slurm waits and the guests of emulated machines boot, the other workers use the
# CPUs. tests/conftest.py gives each worker a module, a machine or a suite at a time, the longest first.
PYTEST := $(BIN)/python -m pytest -q --durations=25 --dist loadscope
WORKERS := $(shell n=$$(nproc); echo $$((n < 8 ? n + 3 : n)))

test: ## all tests and lint, or one suite (SUITE=unit|drills|golden|hostile|studies|integration|containers|slurm|emulated|workflows)
	@setup/setup.sh test
	@$(MAKE) --no-print-directory -j2 $(if $(SUITE),,lint) suites

# Tests that start make must not see this one's options.
suites: $(if $(SUITE),,compiled-tests)
	@unset MAKEFLAGS MFLAGS MAKELEVEL; \
	    $(PYTEST) -n $(if $(filter golden slurm containers,$(SUITE)),0,$(WORKERS)) --ignore=tests/prose tests/$(SUITE)

# Every worker imports all tests, and emulated machines cannot keep bytecode: one process compiles all, while another PU
# lints.
compiled-tests:
	@$(BIN)/python -m compileall -q src
	@$(PYTEST) -n 0 --collect-only --ignore=tests/prose tests >/dev/null || :

lint: dev ## ruff, mypy (strict on src/ and studies/), the import order of the packages, Spack's locks, GitHub's workflow, shellcheck, clang-format, names and documents
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check -q .
	@$(BIN)/mypy
	@$(BIN)/python spack-env/stack.py lock --check
	@$(BIN)/lint-imports --no-cache >.cache/imports || { cat .cache/imports; exit 1; }
	@$(BIN)/zizmor --offline --quiet --strict-collection .github/workflows
	@shellcheck setup/*.sh containers/*.sh .ci/run slurm/*.sh slurm/*.sbatch slurm/nhc/*.nhc
	@clang-format --dry-run -Werror $$(find probe -name '*.[ch]')
	@$(BIN)/python -m pytest -q -p no:xdist tests/prose

bench: dev ## measure this program's own cost, and compare the probe with others: all of bench/, or one (BENCH=probe)
	@for file in $(or $(BENCH:%=bench/%.py),$(sort $(wildcard bench/*.py))); do \
	    echo "== $$file"; PYTHONPATH=studies $(BIN)/python $$file || exit; \
	done

study: dev ## a publication's study repeated on this host (STUDY=lenis2017|scaling2018|locks-today|FILE ARGS="--dataset lambda")
	@PYTHONPATH=studies $(BIN)/python -m repeat_study $(STUDY) $(ARGS)

blocked-reads: dev ## reads in blocks, which programs of the 2018 study need: make blocked-reads ARGS="r.fq -o b.fq"
	@PYTHONPATH=studies $(BIN)/python -m blocked_fastq $(ARGS)

paper: dev ## the papers' tables and figures from studies/published, and contradictions with their text (OUT=reports/out/paper)
	@PYTHONPATH=studies $(BIN)/python -m paper -o $(or $(OUT),reports/out/paper)

docs: dev ## the manual: reports/out/docs/index.html, which opens from disk, manual pages in reports/out/man, docs/*.svg and reports/*.html
	@PYTHONPATH=bench:studies $(BIN)/python docs/extensions/picture.py
	@$(BIN)/python -m sphinx -qEW --keep-going -d .cache/docs -b html docs reports/out/docs
	@$(BIN)/python -m sphinx -qW --keep-going -d .cache/docs -b man docs reports/out/man
	@echo "docs: reports/out/docs/index.html, man -M reports/out/man firsttouch"

# The wheel of the static probe runs with any C library, which its platform tags state.
# Its build would ask for ninja (-x: do not check), and does with make.
dist: dev ## wheels and source archives of firsttouch and of its probe, in dist/ (OUT=dist)
	@$(BIN)/python -m build -n --outdir $(or $(OUT),dist) . >.cache/dist.log 2>&1 && \
	    $(BIN)/python -m build -nx -C cmake.define.STATIC=ON --outdir $(or $(OUT),dist) probe >.cache/dist.log 2>&1 && \
	    $(BIN)/python -m wheel tags --remove --platform-tag \
	    manylinux_2_17_$$(uname -m).musllinux_1_1_$$(uname -m) $(or $(OUT),dist)/firsttouch_probe-*-linux_*.whl || \
	    { cat .cache/dist.log; exit 1; }

# What a release has is built twice: equal bytes show that nothing but the sources is in it.
release: dev ## wheels, source archives, images' definitions, an SBOM and checksums, built twice and compared (OUT=dist/release)
	@set -e; out=$(or $(OUT),dist/release); export SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct); \
	    for folder in "$$out" "$$out.again"; do \
	        rm -rf "$$folder"; $(MAKE) --no-print-directory dist OUT="$$folder"; \
	        git archive HEAD containers | gzip -n >"$$folder/firsttouch-images.tar.gz"; \
	        $(BIN)/python containers/sbom.py "$$folder"/firsttouch-*.whl setup/requirements.lock >"$$folder/firsttouch.spdx.json"; \
	        (cd "$$folder" && sha256sum -- * >SHA256SUMS); \
	    done; \
	    diff "$$out/SHA256SUMS" "$$out.again/SHA256SUMS"; rm -r "$$out.again"; cat "$$out/SHA256SUMS"

emulate: ## run CMD=… on an emulated NUMA machine (SYSTEM=amd-opteron)
	@setup/setup.sh test
	@$(BIN)/python tests/emulated/emulate.py --machine $(SYSTEM) -- sh -c "$${CMD:?names the command}"

lock: dev ## pin the newest Python packages that fit pyproject.toml (needs uv on PATH)
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	    --no-header --no-annotate --all-extras --no-emit-package firsttouch-probe \
	    pyproject.toml -o setup/dev-requirements.lock --upgrade
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	    --no-header --no-annotate --extra report --extra build --extra spack --no-emit-package firsttouch-probe \
	    -c setup/dev-requirements.lock pyproject.toml -o setup/requirements.lock
	echo snakemake | uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	    --no-header --no-annotate - -o tests/workflows/snakemake.lock --upgrade
	echo multiqc | uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	    --no-header --no-annotate $(addprefix --no-emit-package ,boto3 botocore jmespath kaleido pyarrow \
	    polars-runtime-compat s3transfer) - -o tests/workflows/multiqc.lock --upgrade

# In .cache lies also what a user made or downloaded, or what takes hours to build.
KEPT := advice mirror spack study-programs images emulated

clean: ## remove .venv and caches (advice, mirrors, Spack's store, study programs, images, datasets and reports stay)
	rm -rf .venv .venv.new .venv.old .mypy_cache .ruff_cache .pytest_cache .hypothesis
	if [ -d .cache ]; then find .cache -mindepth 1 -maxdepth 1 $(KEPT:%=! -name %) -exec rm -rf {} +; fi
