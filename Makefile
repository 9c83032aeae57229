# Two commands do all the set-up on a fresh machine: `make demo` and `make test`. Neither installs twice.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2
TORCH ?= 2.4.0
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: demo test test-torch lint format documents docs clean

demo: $(VENV)/installed
	$(BIN)/driftlaw run embedded --methods source,norm,tent,law --limit 1000 --out runs/demo --again
	$(BIN)/driftlaw report runs/demo --out report.html

test: $(VENV)/installed-dev lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# the tests with another torch, by default the oldest that pyproject.toml allows; it brings gigabytes of CUDA along
test-torch: $(VENV)-torch-$(TORCH)/installed
	OMP_NUM_THREADS=1 $(VENV)-torch-$(TORCH)/bin/python -m pytest -p no:cacheprovider -n $(WORKERS) --dist worksteal

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# the figures in the README, and RESULTS.md with its drawings, made anew from the records in results/
documents: $(VENV)/installed
	$(BIN)/python tools/fill_documents.py
	$(BIN)/python tools/make_results.py

# the manual, as HTML in docs/_build/html; a warning is an error
docs: $(VENV)/installed-docs
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "driftlaw needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

$(VENV)-torch-%/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)-torch-$*
	$(VENV)-torch-$*/bin/pip install --quiet torch==$* --editable '.[dev]'
	touch $@

$(VENV)/installed-docs: $(VENV)/installed
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-torch-* runs report.html docs/_build docs/reference
