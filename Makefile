# `make demo` and `make test` work on a fresh machine: they create a virtual environment in .venv and install into it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2
TORCH ?= 2.4.0
LOCK := requirements-dev.lock
# One directory per commit: an interrupted demo resumes, and records of another version are never mixed in.
DEMO := runs/demo-$(shell git rev-parse --short HEAD 2>/dev/null || echo local)
PYTEST := -m pytest -n $(WORKERS) --dist worksteal
export PIP_DISABLE_PIP_VERSION_CHECK = 1
# Containers often set it. Without bytecode, every process that imports torch would compile its modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo serve send test test-torch test-extras lint format documents check-documents docs check-wheel lock locked audit clean

# Run four methods on the embedded dataset and write report.html. Takes about two minutes on two CPU cores.
demo: $(VENV)/installed
	$(BIN)/driftlaw run embedded --methods source,norm,tent,law --limit 400 --out $(DEMO)
	$(BIN)/driftlaw report $(DEMO) --out report.html

# Serve the embedded network, with a live page on http://127.0.0.1:8000.
serve: $(VENV)/installed-serve
	$(BIN)/driftlaw serve

# Send a folder of corrupted images to the server of `make serve`.
send: $(VENV)/installed
	mkdir -p runs && cd runs && ../$(BIN)/python ../examples/send_folder.py

# All checks and tests. Skipped tests are listed with their number and reason.
test: $(VENV)/installed-dev lint
	OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST)

# The tests with another version of torch, by default the oldest that pyproject.toml allows.
# On Linux, pip downloads the CUDA libraries of that version (several gigabytes).
test-torch: $(VENV)-torch-$(TORCH)/installed
	OMP_NUM_THREADS=1 $(VENV)-torch-$(TORCH)/bin/python $(PYTEST) -p no:cacheprovider

# The tests of code that uses optional dependencies, with all of them installed.
test-extras: $(VENV)-extras/installed
	OMP_NUM_THREADS=1 $(VENV)-extras/bin/python $(PYTEST) -p no:cacheprovider \
		tests/models tests/export tests/test_lightning.py tests/test_examples.py

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tools/lint_prose.py

format: $(VENV)/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Generate RESULTS.md, its figures, and the tables in README.md from the records in results/.
documents: $(VENV)/installed
	$(BIN)/python tools/fill_documents.py
	$(BIN)/python -m tools.results

# Fail if a generated document is out of date.
check-documents: $(VENV)/installed
	$(BIN)/python tools/fill_documents.py --check
	$(BIN)/python -m tools.results --check

# Build the manual as HTML in docs/_build/html. Warnings are errors.
docs: $(VENV)/installed-docs
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html

# Build the wheel, install it into a new environment outside this directory, and run the command-line tool there.
check-wheel: $(VENV)/installed
	BIN=$(CURDIR)/$(BIN) tools/check_wheel.sh

# Write the lock file: exact versions and sha256 hashes of everything that development, the manual and the build of the
# package need. torch is left out, because its builds differ by device; constraints.txt states its version.
lock: $(VENV)-tools/installed
	CUSTOM_COMPILE_COMMAND='make lock' $(VENV)-tools/bin/pip-compile --quiet --generate-hashes --no-annotate --strip-extras \
		--no-emit-options --extra dev --extra docs --build-deps-for editable --unsafe-package torch \
		--constraint constraints.txt --output-file $(LOCK) pyproject.toml

# Install what the lock file lists into $(VENV)-locked, and check every file against its hash.
locked:
	$(PYTHON) -m venv $(VENV)-locked
	$(VENV)-locked/bin/pip install --quiet --require-hashes --no-deps --requirement $(LOCK)
	$(VENV)-locked/bin/pip install --quiet --constraint constraints.txt torch
	$(VENV)-locked/bin/pip install --quiet --no-deps --no-build-isolation --editable .
	$(VENV)-locked/bin/pip check

# Fail if a known vulnerability affects a package of the lock file, or torch.
audit: $(VENV)-tools/installed
	$(VENV)-tools/bin/pip-audit --disable-pip --require-hashes --requirement $(LOCK)
	$(VENV)-tools/bin/pip-audit --disable-pip --no-deps --requirement constraints.txt

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "driftlaw needs Python 3.11 or newer. Use for example: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	# Without bytecode, which Python writes when a module is first imported: saves about 20 seconds.
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt --editable .
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

$(VENV)/installed-serve: $(VENV)/installed
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[serve]'
	touch $@

$(VENV)/installed-docs: $(VENV)/installed
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@

$(VENV)-torch-%/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)-torch-$*
	$(VENV)-torch-$*/bin/pip install --quiet torch==$* --editable '.[dev]'
	touch $@

$(VENV)-extras/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)-extras
	$(VENV)-extras/bin/pip install --quiet --constraint constraints.txt --editable '.[dev,vision,hf,lightning,tensorboard,export]'
	touch $@

$(VENV)-tools/installed: Makefile
	$(PYTHON) -m venv $(VENV)-tools
	$(VENV)-tools/bin/pip install --quiet pip-tools==7.6.2 pip-audit==2.10.1
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-torch-* $(VENV)-extras $(VENV)-tools $(VENV)-locked runs/demo-* report.html docs/_build docs/reference
