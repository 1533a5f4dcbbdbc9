# Two commands for newcomers: `make run` and `make test`. Both set up what they need first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# -qq: errors are shown, the warnings about pip's own configuration are not.
INSTALL := $(BIN)/pip install -qq --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help setup run test lint types bench faults sanitize fuzz lock audit modules docs notebooks clean

help:  ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(READY): pyproject.toml constraints.txt
	@echo "Setting up $(VENV) with the tested versions (a few minutes) …"
	@$(PYTHON) -m venv $(VENV)
	@$(INSTALL) --upgrade pip
	@$(INSTALL) -c constraints.txt torch
	@$(INSTALL) -c constraints.txt -e '.[dev]'
	@touch $(READY)

setup: $(READY)  ## Install everything into .venv

run: $(READY)  ## Train on measured solubilities, predict well-known molecules, write a report
	@$(BIN)/grass-gnn demo

test: $(READY) lint types  ## Run style checks, type checks and all tests
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -q

lint: $(READY)  ## Check style and import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-logo --no-cache

types: $(READY)  ## Check types
	$(BIN)/mypy

bench: $(READY)  ## Measure speed and memory, as ratios within one run (half an hour)
	$(BIN)/python benchmarks/run.py

faults: $(READY)  ## Inject more than 500 kills, full disks and memory shortages (ten minutes)
	$(BIN)/python tests/faults/run.py

CXX ?= g++
sanitize: $(READY)  ## Run the kernel's tests under AddressSanitizer and UBSan
	GRASS_SANITIZE=1 ASAN_OPTIONS=detect_leaks=0 \
	LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
	$(BIN)/python -m pytest -q tests/ops/test_native.py tests/ops/test_mixed.py

fuzz: $(READY)  ## Fuzz all readers with a hundred thousand inputs (a quarter of an hour)
	-$(INSTALL) -c constraints.txt -e '.[security]'
	$(BIN)/python -m fuzz

lock: $(READY)  ## Update requirements.lock, the tested environment with hashes
	$(BIN)/python tools/lock.py

audit: $(READY)  ## Look for known vulnerabilities in the locked packages
	$(INSTALL) -c constraints.txt -e '.[security]'
	$(BIN)/python tools/audit.py

modules: $(READY)  ## Update docs/modules.md, the map of the code (a minute)
	$(BIN)/python -m tools.module_map
	$(BIN)/python tools/walk.py --write

docs: $(READY)  ## Build the documentation into site/ and check its links
	$(BIN)/python -m tools.website.reference
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	$(BIN)/python -m tools.website.check site

notebooks: $(READY)  ## Rerun the notebooks and save their output (three minutes)
	$(BIN)/python tools/notebooks.py

clean:  ## Remove the environment and caches of tools
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
