# Two commands for a newcomer: `make run` and `make test`. Both set up what they need first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup run test lint types bench faults sanitize fuzz lock audit modules docs notebooks clean

help:  ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet -c constraints.txt torch
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	touch $(READY)

setup: $(READY)  ## Install everything into .venv

run: $(READY)  ## Train a small GRASS on generated graphs, against two baselines (about four minutes)
	$(BIN)/grass-gnn demo

test: $(READY) lint types  ## Lint, types and tests
	$(BIN)/python -m pytest -n 2 --dist loadgroup -q

lint: $(READY)  ## Style, and which folder may import which
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-logo --no-cache

types: $(READY)  ## Types
	$(BIN)/mypy

bench: $(READY)  ## Speed and memory, as ratios within one run (half an hour)
	$(BIN)/python benchmarks/run.py

faults: $(READY)  ## Kill, starve and fill the disk of every path, hundreds of times (ten minutes)
	$(BIN)/python tests/faults/run.py

CXX ?= g++
sanitize: $(READY)  ## The fused kernel's tests under AddressSanitizer and UBSan
	GRASS_SANITIZE=1 ASAN_OPTIONS=detect_leaks=0 \
	LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
	$(BIN)/python -m pytest -q tests/ops/test_native.py

fuzz: $(READY)  ## A hundred thousand hostile inputs: every one a value or a sentence (a quarter of an hour)
	-$(BIN)/pip install --quiet -c constraints.txt -e '.[security]'
	$(BIN)/python -m fuzz

lock: $(READY)  ## Write requirements.lock anew: the tested environment with hashes
	$(BIN)/python tools/lock.py

audit: $(READY)  ## Look for known vulnerabilities in what requirements.lock names
	$(BIN)/pip install --quiet -c constraints.txt -e '.[security]'
	$(BIN)/python tools/audit.py

modules: $(READY)  ## Write docs/modules.md, the map of the code, anew
	$(BIN)/python -m tools.module_map
	$(BIN)/python tools/walk.py --write

docs: $(READY)  ## Build the documentation into site/ and check its links
	$(BIN)/python -m tools.website.reference
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	$(BIN)/python -m tools.website.check site

notebooks: $(READY)  ## Run the notebooks of docs/notebooks anew and save what they show (three minutes)
	$(BIN)/python tools/notebooks.py

clean:  ## Remove the environment and what tools left
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
