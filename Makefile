# Everything a newcomer needs: `make demo` runs the main job, `make test` runs all tests.
# Both create .venv on first use and are quick after that. PYTHON=python3.12 picks another interpreter.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
REPEAT ?= 1
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help install demo test unit integration check lint format types bench clean

help:  ## Show this list.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

install: $(STAMP)  ## Create .venv and install the package with its development tools.

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 10) else "Python 3.10 or newer is needed; try: make PYTHON=python3.12 ...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: install  ## Run the main job: 20,000 real flights through Kinesis and back (REPEAT=10 for 200,000).
	@$(BIN)/kinesis-sdk demo --repeat $(REPEAT) $(ARGS)

test: unit integration  ## Run all tests.

unit: install  ## Run the unit tests only: no network, no sleeping, under a minute.
	@$(BIN)/python -m pytest tests

integration: install  ## Run what needs servers and processes: sockets, worker processes that get killed.
	@$(BIN)/python -m pytest integration

check: install  ## What CI runs: lint, format, types, all tests.
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(MAKE) --no-print-directory test

format: install  ## Format the code and fix what can be fixed safely.
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: install  ## Print the benchmark tables that the README quotes.
	@$(BIN)/python benchmarks/bench_codec.py
	@$(BIN)/python benchmarks/bench_fake.py

clean:  ## Remove .venv, caches and build output.
	rm -rf $(VENV) dist build .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis
