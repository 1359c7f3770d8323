# `make demo` and `make test` install what they need into .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What is imported is compiled then, and kept: all that is installed would take minutes.
PIP := $(BIN)/pip install --quiet --no-compile --disable-pip-version-check \
	--constraint constraints.txt
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest \
	--numprocesses auto --maxprocesses 4 --dist worksteal
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all lint bench docs protos clean
.DEFAULT_GOAL := test

demo: $(VENV)/.demo
	$(BIN)/hearsay demo

test: $(VENV)/.dev
	$(PYTEST) -m "not slow and not long"

test-all: test
	$(PYTEST) -m "slow and not long"

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --num-workers auto

bench: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/benchmarks --benchmark-only --benchmark-columns=median,iqr,rounds
	OMP_NUM_THREADS=2 $(BIN)/python tests/benchmarks/dpsgd_speed.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/benchmarks/ingest_speed.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/benchmarks/http_speed.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/benchmarks/client_speed.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/benchmarks/analysis_latency.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/benchmarks/sizing_costs.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/benchmarks/spark_speed.py

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

protos: $(VENV)/.dev
	$(BIN)/python protos/generate.py client/python

clean:
	rm -rf $(VENV) site .pytest_cache .mypy_cache .ruff_cache

$(VENV)/.%: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing hearsay-ldp[$*] into $(VENV) (once; a minute or two)"
	$(PIP) --editable '.[$*]'
	@touch $@

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and \
		"hearsay needs Python 3.11 or newer, found %d.%d; set PYTHON=..." % v[:2])'
	$(PYTHON) -m venv $(VENV)
