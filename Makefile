# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Hundreds of processes start in the tests: each would compile PyTorch and what it tests anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo docs links test test-deploy fuzz check types suite install benchmark clean

demo: $(READY)
	$(BIN)/spreadout compare digits-demo --out runs/demo --force
	@echo
	@echo "The report: $(CURDIR)/runs/demo/report.html"

# Types are checked beside the tests: that is one process, and a second core would have nothing to do.
test: $(READY)
	$(BIN)/ruff check .
	@$(MAKE) --no-print-directory -j 2 types suite

types: $(READY)
	$(BIN)/mypy

# -rs: what was skipped, and why (no Chromium, no data sets). The order is that of tests/conftest.py.
suite: $(READY)
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder -rs

# The longer scenarios of killed, interrupted and attacked deployments: real processes, about five minutes.
test-deploy: $(READY)
	$(BIN)/pytest -m deploy tests/flower/test_flower_deploy.py

# Files, messages and configs changed at random, for so many seconds; what is found is kept in tests/fuzz/corpus.
FUZZ_SECONDS ?= 600
fuzz: $(READY)
	SPREADOUT_CACHE=$$(mktemp -d) PYTHONPATH=tests/support $(BIN)/python -W ignore -m fuzz.run --seconds $(FUZZ_SECONDS)

# The documentation site, in build/site; a warning is an error, which --quiet would not notice.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "The site: $(CURDIR)/build/site/index.html"

# Asks every other host that the documentation links to; needs a network.
links:
	$(PYTHON) docs/_site/links.py

check: types
	$(BIN)/ruff check .
	$(BIN)/pytest -q tests/test_layers.py

benchmark: $(READY)
	$(BIN)/python -m benchmarks.speed.simulator

install: $(READY)

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "spreadout needs Python 3.11 or newer; this is `$(PYTHON) --version`. Try: make $(MAKECMDGOALS) PYTHON=python3.11" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) (once; PyTorch takes a minute)"
	@$(BIN)/python -m pip install --disable-pip-version-check --progress-bar off --no-compile -qq -r requirements.lock
	@$(BIN)/python -m pip install --disable-pip-version-check -qq --no-deps --no-build-isolation --editable .
	@touch $(READY)

clean:
	rm -rf $(VENV) build dist src/*.egg-info
