# Targets for people and for CI. Nothing but test-browser needs root, or the network beyond the package index.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
# Half of the tests wait for processes: more workers than cores keep the cores busy.
TEST_WORKERS ?= 4
# The suite starts a thousand programs: each would compile all of the code anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo docs test test-browser check mutants bench chaos soak proto lock bench-lock clean
.DEFAULT_GOAL := setup

setup: $(STAMP)  ## the .venv alone

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed: make PYTHON=python3.11" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(STAMP)

demo: setup  ## everything on embedded servers, with visible work; Ctrl-C stops it
	$(BIN)/tidemill up --demo

docs: setup  ## the site of the documentation, in build/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

check: setup  ## what must hold before every commit
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q -n 2 tests/unit tests/property tests/architecture

test: setup  ## the whole suite; needs nothing that is already running
	$(BIN)/pytest -n $(TEST_WORKERS) --dist worksteal -m "not chaos and not browser"

test-browser: setup  ## the pages in a real browser; installs Debian's Chromium where it is missing and it may
	$(BIN)/python -m tests.browser.chromium
	$(BIN)/pytest -n 2 --dist worksteal -m browser tests/browser

mutants: setup  ## do the tests of the pure cores notice what is changed in these: make mutants MODULES="triggers.chunks"
	$(BIN)/python -m tests.mutation $(MODULES)

chaos: setup  ## longer, seeded fault runs: make chaos SECONDS=600 SEED=7
	SECONDS=$(SECONDS) SEED=$(SEED) $(BIN)/pytest -m chaos --timeout 7200 tests/chaos -s

bench: setup  ## us, the peers and the floors in one run; makes docs/benchmarks.md of it
	$(BIN)/python -m bench --page $(BENCH_ARGS)

soak: setup  ## everything at half load for an hour: does anything grow? make soak MINUTES=60
	$(BIN)/python -m bench.soak --minutes $(or $(MINUTES),60)

proto: setup  ## the Python code of the protos, made anew
	$(BIN)/python -m app.proto.generate

lock:  ## needs uv
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --extra embedded --group dev --custom-compile-command "make lock" pyproject.toml -o requirements.lock
	uv pip compile --quiet --universal --python-version 3.13 --generate-hashes --no-emit-index-url --extra tracing --constraint requirements.lock --no-annotate --custom-compile-command "make lock" pyproject.toml -o deploy/image.lock
	echo hatchling | uv pip compile --quiet --universal --python-version 3.13 --generate-hashes --no-emit-index-url --constraint requirements.lock --no-annotate --custom-compile-command "make lock" - -o deploy/build.lock

bench-lock:  ## needs uv
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --custom-compile-command "make bench-lock" bench/peers.in -o bench/peers.lock

clean:
	rm -rf build .venv .mypy_cache .ruff_cache .import_linter_cache .hypothesis
