# `make` alone lists the targets. Everything runs inside .venv, which `setup` builds and keeps up to date.

PYTHON ?= python3
# `make setup PIP_FLAGS=` shows pip's own output and progress bars.
PIP_FLAGS ?= --quiet
# `make test PYTEST_ARGS=` runs the slow tests too; `make test PYTEST_ARGS="-k region"` runs some.
PYTEST_ARGS ?= -m "not slow and not cluster"

# `make demo DEMO_OUT=elsewhere`: a folder of another version is not written to.
DEMO_OUT ?= out/demo

# `make cluster CLUSTER_TESTS=path::test`: only these.
CLUSTER_TESTS ?= tests/lab/cluster tests/lab/compare/test_cluster.py tests/cli/test_cluster.py

# `make torture MINUTES=20 SEED=7 GOAL="bits kills"`; 0 minutes is the sample that CI runs, the same cases every time.
MINUTES ?= 60
SEED ?=
GOAL ?=

# `make golden-against REV=main SECTIONS="decode_mini gates"`; without SECTIONS all of tests/golden.py.
REV ?=
SECTIONS ?=

# Some CPUs, often virtual ones, advertise AMX without letting programs use it; a bf16 matrix product then dies
# with an illegal instruction. oneDNN stops at plain AVX-512 if told so before torch is imported.
export ONEDNN_MAX_CPU_ISA ?= AVX512_CORE

# Threads that spin while they wait make a small model many times slower on shared cores. `import unmask` sees to the same
# (src/unmask/base/environment.py); this is for what loads torch first. Settings of your own win.
ifeq ($(KMP_BLOCKTIME)$(KMP_LIBRARY)$(GOMP_SPINCOUNT),)
export OMP_WAIT_POLICY ?= PASSIVE
endif
ifeq ($(MKL_NUM_THREADS)$(OMP_THREAD_LIMIT),)
export OMP_NUM_THREADS ?= $(shell cores=$$(nproc 2>/dev/null || echo 4); [ "$$cores" -lt 4 ] && echo "$$cores" || echo 4)
endif

VENV := .venv
BIN := $(VENV)/bin
# INSTALLED exists only after a complete install. UNFINISHED exists while one is running, so it survives a kill:
# pip takes a half-copied package for an installed one, hence an environment with that mark is built anew.
INSTALLED := $(VENV)/.installed
UNFINISHED := $(VENV)/.unfinished

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# The steps share one environment and the tools use all cores themselves; `make -j clean test` keeps its order.
.NOTPARALLEL:
.PHONY: help setup demo test golden golden-update golden-against slow cluster torture wheel nightly lint format notebooks bench \
  gpu-check clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(INSTALLED) ## create .venv and install the package with its development tools

$(INSTALLED): pyproject.toml constraints.txt
	@if [ -e $(UNFINISHED) ] || ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
	  $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "unmask needs Python 3.11 or newer, and '$(PYTHON)' is not: try 'make setup PYTHON=python3.12'" >&2; \
	    exit 1; }; \
	  rm -rf $(VENV) && mkdir $(VENV) && touch $(UNFINISHED) && $(PYTHON) -m venv $(VENV); \
	fi
	@echo "Installing into $(VENV) (a few minutes the first time) ..."
	@rm -f $@ && touch $(UNFINISHED)
	@# setuptools first and no build isolation: the build then uses the pinned version and downloads nothing else.
	@$(BIN)/python -m pip install --disable-pip-version-check $(PIP_FLAGS) -c constraints.txt setuptools
	@$(BIN)/python -m pip install --disable-pip-version-check $(PIP_FLAGS) -c constraints.txt \
	  --no-build-isolation -e '.[dev]'
	@rm -f $(UNFINISHED) && touch $@

demo: $(INSTALLED) ## methods, runs to look at and a study of the small model; the page is out/demo/report.html
	$(BIN)/unmask demo --out $(DEMO_OUT)

test: lint ## lint, then run the tests (PYTEST_ARGS= for the slow ones too)
	@# Tensors in tests are tiny: a process per core is faster than a thread.
	$(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal $(PYTEST_ARGS)

slow: $(INSTALLED) ## the tests that `make test` leaves out for their time
	$(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal -m "slow and not cluster"

golden: $(INSTALLED) ## dump all that a user can see and compare it with tests/golden_values (six minutes; SECTIONS=)
	$(BIN)/python tests/golden_compare.py check $(SECTIONS)

golden-update: $(INSTALLED) ## write tests/golden_values anew and say which values move (SECTIONS=)
	$(BIN)/python tests/golden_compare.py update $(SECTIONS)

golden-against: $(INSTALLED) ## dump another commit and the working tree, and compare them to the bit (REV=, SECTIONS=)
	$(BIN)/python tests/golden_compare.py against $(REV) $(SECTIONS)

cluster: $(INSTALLED) ## studies on a Ray cluster of three nodes on this machine, while nodes are killed (five minutes)
	$(BIN)/python -m pytest -m cluster $(CLUSTER_TESTS)

torture: $(INSTALLED) ## try to break what tests/reliability/__init__.py promises (MINUTES=60, SEED=, GOAL=; MINUTES=0: a sample)
	$(BIN)/python -m tests.reliability $(if $(filter 0,$(MINUTES)),--sample,--minutes $(MINUTES)) \
	  $(if $(SEED),--seed $(SEED)) $(foreach goal,$(GOAL),--only $(goal))

wheel: $(INSTALLED) ## build the wheel and compare its files with those of the checkout
	$(BIN)/python .ci/wheel_files.py

# `make -k nightly` goes on after a part that failed. MINUTES and SEED are those of the torture.
nightly: slow cluster torture wheel golden ## what is too long for every change: slow tests, clusters, torture, the whole golden dump

lint: $(INSTALLED) ## check style, formatting, imports and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PYTHONPATH=src $(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/mypy

format: $(INSTALLED) ## fix what ruff can fix and format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

notebooks: $(INSTALLED) ## run notebooks/ again and keep their outputs
	$(BIN)/python notebooks/execute.py

bench: $(INSTALLED) ## ratios of one run on this machine: forward, step, decode, caches, study
	$(BIN)/unmask bench

# With PART=times it measures LLaDA-8B's shape instead; ONLY="tests bits" names some of the values; logs go to GPU_OUT.
gpu-check: ## on a machine with a GPU: its tests, and bits and values beside those of OLD=folder
	$(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON)) tests/gpu/check.py $(or $(PART),values) $(OLD) \
	  $(if $(ONLY),--only $(ONLY)) --out $(or $(GPU_OUT),/tmp/unmask-gpu)

clean: ## remove caches, build products and out/demo; keep .venv and other results
	rm -rf out/demo build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .golden
	find . -path ./$(VENV) -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +
