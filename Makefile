# `make help` lists the targets. Everything is installed into .venv and one cache folder; nothing else is touched.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test unit integration e2e kind-demo verify lint images clean clean-cache

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: set PYTHON=/path/to/python3.11" >&2; exit 2; }
	@echo "installing into $(VENV), once: one to three minutes" >&2
	@$(PYTHON) -m venv $(VENV) || { echo "the venv module is missing: apt-get install python3-venv" >&2; exit 2; }
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(STAMP) ## P, RLD, MD, both ends of the link and the router as local processes; a long prompt through them
	$(BIN)/pdd demo

test: $(STAMP) ## everything: lint, unit, integration, charts, and the tests on two kind clusters
	hack/test.sh

unit: $(STAMP) ## the fast tests
	$(BIN)/pytest -q tests/unit

integration: $(STAMP) ## real processes on loopback
	$(BIN)/pytest -q tests/integration

e2e: $(STAMP) ## two kind clusters with a WAN between them (root and a container engine)
	hack/test.sh e2e

kind-demo: $(STAMP) ## two kind clusters, Helm install, kubectl apply, one chat completion through the router
	$(BIN)/python -m e2e.kind_demo

lint: $(STAMP) ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

verify: $(STAMP) lint ## lint, then regenerate what is generated and compare
	$(BIN)/python hack/gen_crds.py --check

images: $(STAMP) ## build the operator, router, link and engine images
	images/build.sh

clean: ## remove the virtual environment and build output
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache operator/*.egg-info

clean-cache: ## remove the cache folder (node image, tools, wheels)
	hack/clean_cache.sh
