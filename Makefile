# Every target sets itself up in .venv; a bare machine needs python3 (3.11 or later) and make.
PYTHON ?= python3
JOBS ?= 2
BIN := .venv/bin
STAMP := .venv/.stamp
BENCH ?= $(sort $(wildcard bench/bench_*.py))

# pip applies -c to what it installs; the two variables pin covey's isolated build too (older and newer pip).
PIP := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt $(BIN)/pip

.DEFAULT_GOAL := help
.PHONY: help install demo test test-fast test-workers lint format docs bench peers clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) install -q -c constraints.txt -e '.[dev]'
	@touch $@

install: $(STAMP) ## Install covey and its tools into .venv (PYTHON=python3.12 to choose)

demo: export OMP_NUM_THREADS := 1
demo: $(STAMP) ## Train eight methods on the built-in data and write a report
	$(BIN)/covey reproduce covey demo --jobs $(JOBS) --results runs/demo --work runs/demo/runs
	$(BIN)/covey compare runs/demo/runs/*/ --out runs/demo/report.html

# One thread per worker: threads inside an operation on small tensors cost more than they give.
test test-fast: export OMP_NUM_THREADS := 1

test: $(STAMP) ## Run all tests, on two cores (JOBS=n to change)
	$(BIN)/pytest -n $(JOBS) --dist worksteal

test-workers: export OMP_NUM_THREADS := 1
test-workers: export COVEY_TEST_GRID := 1
test-workers: $(STAMP) ## Run every method with 1, 2 and 3 workers, several chunks and shards
	$(BIN)/pytest -n $(JOBS) tests/fleet/test_workers.py tests/fleet/test_ray.py

test-fast: $(STAMP) ## Run the tests that are not marked slow
	$(BIN)/pytest -n $(JOBS) --dist worksteal -m 'not slow'

lint: $(STAMP) ## Check style, format, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP) ## Sort imports, mend what ruff can, format
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

# The variable leaves out the theme's note about its own future (no new versions after May 2027).
docs: export NO_MKDOCS_2_WARNING := 1
docs: $(STAMP) ## Build the pages into site/ (no network; a broken link fails)
	$(BIN)/mkdocs build --strict
	@echo "open site/index.html"

bench: $(STAMP) ## Run the benchmarks (BENCH=bench/bench_x.py for one)
	@test -n "$(BENCH)" || { echo "no bench/bench_*.py to run" >&2; exit 1; }
	@set -e; for script in $(BENCH); do echo "== $$script"; $(BIN)/python "$$script"; done

# Other libraries have an environment of their own: LensKit needs an older pandas.
PEERS := .venv-peers
$(PEERS)/.stamp: pyproject.toml constraints.txt bench/peers-constraints.txt
	$(PYTHON) -m venv $(PEERS)
	grep -v '^pandas==' constraints.txt | cat - bench/peers-constraints.txt > $(PEERS)/constraints.txt
	PIP_CONSTRAINT=$(PEERS)/constraints.txt PIP_BUILD_CONSTRAINT=$(PEERS)/constraints.txt \
		$(PEERS)/bin/pip install -q -e . implicit lenskit ir_measures pytest pytest-timeout
	@touch $@

peers: $(PEERS)/.stamp ## Compare iALS and EASE with implicit and LensKit (4 CPU minutes)
	$(PEERS)/bin/python bench/peers.py
	$(PEERS)/bin/pytest -q tests/bench/test_peers.py

clean: ## Remove caches and build artefacts (.venv and runs/ stay)
	rm -rf build dist site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -path './.venv*' -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
