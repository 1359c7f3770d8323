# `make demo` and `make test` install what they need into .venv first, and into client/web/node_modules
# where there is Node.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What is imported is compiled then, and kept: all that is installed would take minutes.
PIP := $(BIN)/pip install --quiet --no-compile --disable-pip-version-check \
	--constraint constraints.txt
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --dist worksteal
unexport PYTHONDONTWRITEBYTECODE

WEB := client/web
NPM := npm --prefix $(WEB) --no-audit --no-fund
# Without Node the TypeScript SDK is neither built nor tested, and each command says so.
NODE_20 := $(shell node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2>/dev/null && echo yes)
ifeq ($(NODE_20),yes)
NODE_MODULES := $(WEB)/node_modules/.installed
npm_run = $(NPM) run --silent $(1)
else
NODE_MODULES :=
npm_run = @echo "skipped: $(1) of the TypeScript SDK, which needs Node 20 or newer" >&2
endif

.PHONY: demo test test-all test-lowest test-newest test-pythons lint web pages bench bench-models docs protos clean \
	mutants measure
.DEFAULT_GOAL := test

demo: $(VENV)/.demo
	$(BIN)/hearsay demo

# Some tests compare the TypeScript SDK with Python, so it is built first. Three workers keep two cores busy:
# many tests wait. The benchmarks have no quick test, and each worker would import them.
test: $(VENV)/.dev web
	$(PYTEST) --numprocesses 3 --ignore tests/benchmarks -m "not slow and not long"
	$(call npm_run,test)

# The quick tests with the lowest and the newest versions of what is needed, and on other Pythons.
test-lowest test-newest test-pythons:
	PYTHON=$(PYTHON) tests/versions.sh $(@:test-%=%)

test-all: test test-pythons
	$(PYTEST) --numprocesses auto --maxprocesses 4 -m "slow and not long"
	$(call npm_run,test:slow)

lint: $(VENV)/.dev $(NODE_MODULES)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --num-workers auto
	$(call npm_run,lint)

web: $(NODE_MODULES)
	$(call npm_run,build)

# What the server's web pages run in browsers: users of the Python package need no Node.
pages: $(NODE_MODULES)
	$(call npm_run,pages)

bench: $(VENV)/.dev $(NODE_MODULES)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/benchmarks --benchmark-only --benchmark-columns=median,iqr,rounds
	OMP_NUM_THREADS=2 $(BIN)/python tests/benchmarks/dpsgd_speed.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/benchmarks/ingest_speed.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/benchmarks/http_speed.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/benchmarks/pages_load.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/benchmarks/sealed_speed.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/benchmarks/shuffler_speed.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/benchmarks/two_servers_speed.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/benchmarks/client_speed.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/benchmarks/analysis_latency.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/benchmarks/sizing_costs.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/benchmarks/spark_speed.py
	$(call npm_run,bench)

# MODELS is a folder with the idx files of MNIST and Fashion-MNIST in mnist/ and fashion-mnist/. This redraws
# the table of docs/adpe.md and its picture, in half an hour of two cores, or on a GPU.
MODELS ?= ../shared/data
bench-models: $(VENV)/.dev
	$(BIN)/python examples/adpe.py --mnist $(MODELS)/mnist --fashion $(MODELS)/fashion-mnist

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

protos: $(VENV)/.dev
	$(BIN)/python protos/generate.py client/python

clean:
	rm -rf $(VENV) .venv-versions site .pytest_cache .mypy_cache .ruff_cache $(WEB)/node_modules $(WEB)/dist

$(WEB)/node_modules/.installed: $(WEB)/package.json $(WEB)/package-lock.json
	$(NPM) ci --loglevel=error
	@touch $@

$(VENV)/.%: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing hearsay-ldp[$*] into $(VENV) (once; a minute or two)"
	$(PIP) --editable '.[$*]'
	@touch $@

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and \
		"hearsay needs Python 3.11 or newer, found %d.%d; set PYTHON=..." % v[:2])'
	$(PYTHON) -m venv $(VENV)

# Put deliberate privacy bugs before the tests that must kill them; TENTH=$(date -u +%F) tries a tenth, drawn by the day.
mutants: $(VENV)/.dev $(NODE_MODULES)
	OMP_NUM_THREADS=1 $(BIN)/python tests/mutants/run.py $(if $(TENTH),--tenth $(TENTH))

# Measure what a reader must hold: lines, options, functions, files that an addition touches. Writes docs/design.md.
measure: $(VENV)/.dev
	HEARSAY_TESTING=1 PYTHONPATH=tests $(BIN)/python -m measuring.table
