# Everything runs in .venv with the versions of constraints.txt; each target sets up what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

export JAX_PLATFORMS ?= cpu

# What `make test-newest` and `make test-lowest` run: all fast tests, or some (TESTS="tests/models").
TESTS ?= tests
WORKERS ?= 2

.PHONY: setup browser demo test test-slow test-attack test-newest test-lowest lint format docs reproduce bench bench-setup test-bridge clean
setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(STAMP)

# The report is tested in a real browser; without one those tests are skipped (never in CI).
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
	  command -v google-chrome >/dev/null || \
	  { [ "$$(id -u)" = 0 ] && apt-get update -qq && \
	    apt-get install -y -qq --no-install-recommends chromium fonts-liberation; } || \
	  echo "No Chromium: browser tests will be skipped (install it, or set KEEPSCORE_BROWSER)."

demo: setup
	$(BIN)/keepscore demo --out runs/demo

test: setup browser lint
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --durations 40

test-slow: setup browser
	$(BIN)/python -m pytest -m slow

# Hostile files and bad arguments by the thousand: nothing but typed errors may come of them.
test-attack: setup
	cd tests/helpers && ../../$(BIN)/python -m attack

# The wheel in a throw-away environment: without pinned versions (PYTHON=python3.13), or with the
# lowest that pyproject.toml allows (PYTHON=python3.11).
test-newest:
	PYTHON=$(PYTHON) .ci/fresh newest $(TESTS) -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test-lowest:
	PYTHON=$(PYTHON) .ci/fresh lowest $(TESTS) -n $(WORKERS) --dist loadfile --no-loadscope-reorder

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The tutorial's outputs are made anew by running it. The theme's notice about itself is not ours.
docs: setup
	$(BIN)/python docs/run_page.py docs/tutorial.md
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# The paper's experiments; CASE is sis, gaussian, student-t, all or sis-large.
CASE ?= sis
PROFILE ?= smoke
reproduce: setup
	$(BIN)/python -m reproduction $(CASE) --profile $(PROFILE) --out runs/reproduce

bench: setup
	$(BIN)/python -m benchmarks

# Peers and oracles live in an environment of their own; the CPU build of torch goes in first.
bench-setup: .venv-bench/.installed

.venv-bench/.installed: pyproject.toml constraints.txt benchmarks/peers/requirements.txt
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check -r benchmarks/peers/requirements.txt
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check -e . pytest pytest-timeout beartype
	touch $@

test-bridge: bench-setup
	.venv-bench/bin/python -m pytest tests/surrogate/test_sbi_bridge.py tests/benchmarks/test_peers.py

clean:
	rm -rf $(VENV) .venv-bench .pytest_cache .mypy_cache .ruff_cache build dist
