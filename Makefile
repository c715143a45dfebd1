# Needs GNU make and Python 3.11 or newer. Everything else is installed into $(VENV).

PYTHON ?= python3
VENV ?= .venv
MODEL ?= bert
SECONDS ?= 600
MODELS ?= 1000
ARGS ?=
# Two test processes: each runs single-threaded, and the models in the tests are small.
TEST_WORKERS ?= 2
# PIP_FLAGS= shows every download.
PIP_FLAGS ?= -qq

PY := $(VENV)/bin/python
STAMP := $(VENV)/.rewritegym-installed
DOCS_STAMP := $(VENV)/.rewritegym-docs-installed

.DEFAULT_GOAL := help
.PHONY: help setup optimize train evaluate test fuzz fuzz-optimisations kill node-cases large-model mutants lint types verify-rules format bench results known-results replay docs doctor clean

help: ## print this list
	@echo "usage: make TARGET [MODEL=bert] [ARGS='--seed 1'] [PYTHON=python3.12]"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-19s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP) ## create the virtual environment and install everything into it

# One install from one set of pins: constraints.txt decides every version, PyTorch's among them.
$(STAMP): pyproject.toml constraints.txt setup.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "RewriteGym needs Python 3.11 or newer, and '$(PYTHON)' is not. Name another: make setup PYTHON=python3.12" >&2; exit 1; }
	@echo "Installing RewriteGym into $(VENV) (once; minutes on a first download)"
	@$(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install $(PIP_FLAGS) --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

optimize: setup ## make the ONNX file FILE faster
	@test -n "$(FILE)" || { echo "name a model: make optimize FILE=model.onnx" >&2; exit 2; }
	@$(PY) optimize.py "$(FILE)" $(ARGS)

train: setup ## train an agent on MODEL and write its optimised model
	@$(PY) train.py --model $(MODEL) $(ARGS)

evaluate: setup ## optimise MODEL with the trained agent and compare it with others
	@$(PY) evaluate.py --model $(MODEL) $(ARGS)

test: setup lint types ## check style, types and imports, then run the tests
	@OMP_NUM_THREADS=1 $(PY) -m pytest -q -n $(TEST_WORKERS) --dist loadfile $(ARGS)

fuzz: setup ## damage models for SECONDS and see that loading answers each clearly
	@OMP_NUM_THREADS=1 $(PY) -m tests.fuzzing.loader --seconds $(SECONDS) $(ARGS)

fuzz-optimisations: setup ## optimise MODELS random models, and compare each file with its original in plain ONNX Runtime
	@OMP_NUM_THREADS=1 $(PY) -m tests.fuzzing.optimisations --models $(MODELS) $(ARGS)

kill: setup ## kill optimisations at random moments and look at what they leave
	@$(PY) -m tests.robustness.killing --moments 50 $(ARGS)

node-cases: setup ## optimise all node test cases of onnx and compare (nightly; ARGS='--planted --first 0 --count 500')
	@OMP_NUM_THREADS=1 $(PY) -m tests.coverage_of_models.run_node_cases $(ARGS)

large-model: setup ## optimise a model of 2.3 GB with weights in several files (nightly; needs 6 GB of disk)
	@REWRITEGYM_LARGE_MODEL=1 OMP_NUM_THREADS=1 $(PY) -m pytest -q tests/coverage_of_models/test_large_models.py

mutants: setup ## prove 10,000 seeded mutants and all that ship, and measure the speed of proofs (nightly)
	@OMP_NUM_THREADS=1 $(PY) -m tests.graph_rewrite.mutate.seeded $(ARGS)
	@$(PY) -m tests.graph_rewrite.mutate.proof_speed
	@OMP_NUM_THREADS=1 $(PY) -m pytest -q -m slow tests/graph_rewrite/mutate

lint: setup ## check style, formatting and the direction of imports
	@$(PY) -m ruff check --quiet .
	@$(PY) -m ruff format --check --quiet . || { echo "Some files are not formatted: make format" >&2; exit 1; }
	@$(VENV)/bin/lint-imports --no-cache --no-logo

types: setup ## check types (mypy --strict)
	@$(PY) -m mypy

verify-rules: setup ## derive the certificates of all rules again, at every instance
	@$(PY) -m graph_rewrite rules verify $(ARGS)

format: setup ## format the code and mend what ruff can mend
	@$(PY) -m ruff check --fix --quiet .
	@$(PY) -m ruff format --quiet .

bench: setup ## measure what README and docs quote
	@$(PY) -m benchmarks.env_speed --model $(MODEL) $(ARGS)

# MODELS= counts random models elsewhere: without one on the command line all models of the zoo are searched.
results: setup ## search with all agents, judge all results side by side and write the table (MODELS= AGENTS= PEERS= CONTROLS= BUDGET= SEEDS= AA= THREADS= BATCH=)
	@$(PY) -m benchmarks.results $(if $(filter file,$(origin MODELS)),,--models $(MODELS)) \
	  $(if $(AGENTS),--agents $(AGENTS)) $(if $(PEERS),--peers $(PEERS)) --controls $(or $(CONTROLS),all) \
	  --budget $(or $(BUDGET),60) --seeds $(or $(SEEDS),3) --aa $(or $(AA),20) --threads $(or $(THREADS),1) \
	  --batch $(or $(BATCH),1) $(ARGS)

known-results: setup ## write known_results/, with which searches begin, from benchmarks/results
	@$(PY) -m benchmarks.recordings.known_results $(ARGS)

replay: setup ## replay the recorded results of benchmarks/results, and say which are lost
	@$(PY) -m benchmarks.recordings.replay $(ARGS)

# The catalogue of rules is drawn once (a minute) and kept in build/docs until rules, certificates or results change.
docs: $(DOCS_STAMP) ## build the documentation into build/site
	@OMP_NUM_THREADS=1 NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

$(DOCS_STAMP): $(STAMP)
	@$(PY) -m pip install $(PIP_FLAGS) --disable-pip-version-check -c constraints.txt -e '.[dev,docs]'
	@touch $@

doctor: setup ## print provider, CPU, versions, peak speed and noise of this machine
	@$(VENV)/bin/rewritegym doctor $(ARGS)

clean: ## remove the virtual environment, caches and build outputs (runs/ stays)
	@rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
