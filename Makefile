# Horocycle: every target sets up what it needs. `make serve` and `make test` are all a newcomer needs.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PORT   ?= 8000
# As in the service: BLAS threads that spin for a core cost a loaded machine more than they give.
export OPENBLAS_NUM_THREADS ?= 1
SOURCES := $(shell find service clients horocycle -name '*.py')
PIP    := $(BIN)/pip install -qq --disable-pip-version-check

.PHONY: help setup serve test test-hosts wheel docs coverage soak check demo bench constraints hashes sbom clean
.DEFAULT_GOAL := help

help:
	@echo "make serve        run the service on http://127.0.0.1:$(PORT)"
	@echo "make test         run all tests"
	@echo "make test-hosts   scikit-learn's, River's, onnxruntime's and a V2 client's own checks; notebooks; the wheel; the site"
	@echo "make wheel        build the wheel into dist/"
	@echo "make docs         build the site of the documentation into site/"
	@echo "make coverage     run all tests, or TESTS=tests/test_x.py, and print their coverage, worker processes included"
	@echo "make soak         what takes long: a table of faults with random seeds, long streams, other stores, ten thousand SVMs"
	@echo "make check        lint, types, import layers"
	@echo "make demo         a service, and agents that play against it"
	@echo "make bench        the paper's tables, and the peers side by side"
	@echo "make constraints  pin the newest versions of what ships"
	@echo "make hashes       requirements.txt: the hashes of what the image installs"
	@echo "make sbom         a bill of materials, sbom.json (CycloneDX)"
	@echo "make clean        remove the virtual environment and caches"

# One stamp per set of extras: a server needs no linter.
$(VENV)/.python:
	@echo "setting up $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.serve: pyproject.toml constraints.txt | $(VENV)/.python
	@echo "installing the service into $(VENV): about a minute, once"
	@$(PIP) -c constraints.txt -e '.[serve]'
	@touch $@

# Bytecode is written here, not at the first import: where PYTHONDONTWRITEBYTECODE is set, that would write none.
$(VENV)/.bytecode: $(SOURCES) | $(VENV)/.serve
	@$(BIN)/python -m compileall -q service clients horocycle
	@touch $@

# Numba compiles the learners' loops and the reader of JSON once, and keeps the result beside them.
$(VENV)/.compiled: $(VENV)/.serve $(wildcard service/learners/*.py) service/sessions/fast_json.py | $(VENV)/.bytecode
	@echo "compiling the learners' loops: about 30 s, once"
	@$(BIN)/python -c 'import service.learners, service.sessions.fast_json'
	@touch $@

# The extra's packages alone: to install the project again would build it again, under the feet of what is compiling.
$(VENV)/.test $(VENV)/.check $(VENV)/.bench: $(VENV)/.%: pyproject.toml constraints.txt | $(VENV)/.serve
	@echo "installing what 'make $*' needs into $(VENV)"
	@$(BIN)/python -c 'import sys, tomllib; print(*tomllib.load(sys.stdin.buffer)["project"]["optional-dependencies"]["$*"], sep="\n")' < pyproject.toml > $@.txt
	@$(PIP) -c constraints.txt -r $@.txt
	@touch $@

setup: $(VENV)/.compiled $(VENV)/.test $(VENV)/.check

serve: $(VENV)/.compiled
	@$(BIN)/python -m service serve --port $(PORT)

# In the order of their names: xdist would have those with a single test last, which are the longest, on one core.
test:
	@$(MAKE) -s --no-print-directory -j2 $(VENV)/.compiled $(VENV)/.test
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# Coverage starts in every Python process that sees COVERAGE_PROCESS_START, the tests' own included.
coverage: $(VENV)/.compiled $(VENV)/.test
	@rm -f .coverage .coverage.*
	@COVERAGE_FILE=$(CURDIR)/.coverage COVERAGE_PROCESS_START=$(CURDIR)/pyproject.toml $(BIN)/python -m pytest $(TESTS)
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report --skip-covered --show-missing

$(VENV)/.hosts: pyproject.toml constraints.txt | $(VENV)/.serve
	@echo "installing what 'make test-hosts' needs into $(VENV): heavy packages, some minutes, once"
	@$(PIP) -c constraints.txt -e '.[serve,hosts]'
	@touch $@

test-hosts: $(VENV)/.compiled $(VENV)/.test $(VENV)/.hosts docs
	@$(BIN)/python -m pytest -p no:cacheprovider hosts

wheel: $(VENV)/.python
	@echo "building the wheel into dist/"
	@rm -rf dist build && $(BIN)/pip wheel -qq --disable-pip-version-check --no-deps --wheel-dir dist .
	@ls dist

docs: $(VENV)/.hosts
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --site-dir site

# Tests that only talk to a service, which may stand on any store.
ON_ANY_STORE := $(addprefix tests/test_,sessions.py stream.py message_stream.py events.py labels.py log.py fits.py)

soak: $(VENV)/.compiled $(VENV)/.test
	@$(BIN)/python -m tests.faults.soak
	@SOAK_SECONDS=$${SOAK_SECONDS:-600} SOAK_SVM=1 $(BIN)/python -m pytest tests/faults/test_bad_input.py tests/faults/test_cluster.py tests/faults/test_consume.py tests/faults/test_loop.py tests/faults/test_message_stream.py tests/faults/test_model.py tests/faults/test_openapi.py tests/test_svm_random.py tests/test_theorems.py tests/test_confidence.py
	@for store in cluster sentinel; do $(BIN)/python -m pytest --store=$$store $(ON_ANY_STORE) || exit 1; done

check: $(VENV)/.check $(VENV)/.test $(VENV)/.bench
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache | tail -n 1
	@! command -v node > /dev/null || for each in service/page/*.js; do node --input-type=module --check < $$each || exit 1; done

demo: $(VENV)/.compiled
	@$(BIN)/python -m clients.demo

bench: $(VENV)/.compiled $(VENV)/.bench
	@$(BIN)/python -m benchmarks

constraints:
	@rm -rf .constraints && $(PYTHON) -m venv .constraints
	@.constraints/bin/pip install -qq --disable-pip-version-check '.[serve,otel,test,check,bench,hosts]'
	@.constraints/bin/pip freeze --exclude horocycle > constraints.txt
	@rm -rf .constraints
	@echo "constraints.txt: $$(wc -l < constraints.txt) packages pinned"

hashes: $(VENV)/.python
	@$(BIN)/python -m release.hashes
	@echo "requirements.txt: $$(grep -c == requirements.txt) packages hashed"

sbom: $(VENV)/.compiled $(VENV)/.test
	@$(BIN)/python -m release.sbom

clean:
	@rm -rf $(VENV) .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info build dist site
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
