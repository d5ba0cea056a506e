# Every target does its own set-up in .venv; a machine with bash, make and Python 3.11 or newer is enough.
# Another interpreter: make test PYTHON=/path/to/python3.13
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# The user's own python3 if it is new enough, else the oldest that we support and that can make environments.
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$p; break; }; done)
VENV := .venv
PY := $(VENV)/bin/python
# What installing says, a package per line; all of it is in the log.
LOG := $(VENV)/install.log
NAMES := | tee $(LOG) | sed -u -nE -e 's,^Processing .*/([^/]+)-[0-9][^-]*-.*,  \1,p' -e 's,^Collecting ([^ ]+).*,  \1,p' \
	-e '/^(Installing collected|ERROR)/p' | cut -c1-100

.PHONY: help demo test tests check formatted bench format lint types layers generated proto dist clean
help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/stamp-demo ## make a few shards of photographs and run a training-like loop over them
	@$(PY) -m stoker_service demo

test: $(VENV)/stamp-dev ## run the tests
	@$(PY) -m pytest -q -n auto --maxprocesses 8 --max-worker-restart 0 --dist loadfile

check: $(VENV)/stamp-dev ## all that CI runs: format, lint, types, layers, generated code, tests
	@$(MAKE) --keep-going formatted lint types layers generated tests

formatted: $(VENV)/stamp-dev
	@echo "== format"; $(PY) -m ruff format --check .

tests: $(VENV)/stamp-dev
	@echo "== tests"; $(MAKE) test

lint: $(VENV)/stamp-dev ## ruff
	@echo "== lint"; $(PY) -m ruff check .

types: $(VENV)/stamp-dev ## mypy --strict on everything
	@echo "== types"; $(PY) -m mypy

layers: $(VENV)/stamp-dev ## imports point downwards only
	@echo "== import layers"; PYTHONPATH=loader:service:proto:benchmarks $(VENV)/bin/python -c \
		'import sys; from importlinter.cli import lint_imports_command; sys.argv = ["lint-imports", "--no-logo"]; lint_imports_command()'

generated: $(VENV)/stamp-dev ## are the .proto files clean, and is their generated code up to date?
	@echo "== generated code"; $(PY) proto/generate.py --check; cd proto && ../$(VENV)/bin/buf lint

proto: $(VENV)/stamp-dev ## generate code from .proto files
	@$(PY) proto/generate.py

bench: $(VENV)/stamp-dev ## measure against other loaders on the same shards; writes out/bench.json and out/bench.md
	@$(PY) -X faulthandler -m stoker_bench.compare --out out

format: $(VENV)/stamp-dev ## format the code and mend what ruff can
	@$(PY) -m ruff check --fix-only -q .; $(PY) -m ruff format .

dist: $(VENV)/stamp-dev ## build the wheel and the source archive into dist/
	@$(PY) -m build --outdir dist .

clean: ## remove what was built, the environment too
	@rm -rf $(VENV) build dist out .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

$(VENV)/stamp-demo: pyproject.toml
	@$(call install,demo,a minute)
	@touch $@

$(VENV)/stamp-dev: pyproject.toml
	@$(call install,dev,several minutes: PyTorch is large)
	@touch $@ $(VENV)/stamp-demo

# $(1): the extra, $(2): how long it takes.
define install
	test -n "$(PYTHON)" || { echo 'Stoker needs Python 3.11 or newer with venv; none was found. Set PYTHON=…' >&2; exit 1; }
	$(PY) -c '' 2>/dev/null || { echo "Making $(VENV) with $(PYTHON)"; rm -rf $(VENV); $(PYTHON) -m venv $(VENV); }
	echo "Installing stoker[$(1)] into $(VENV) ($(2))"
	$(PY) -m pip install --disable-pip-version-check --editable '.[$(1)]' 2>&1 $(NAMES) || \
		{ tail -n 40 $(LOG) >&2; exit 1; }
endef
