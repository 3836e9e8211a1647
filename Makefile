# One command each; every one of them makes its own .venv first. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SOURCES := $(wildcard $(addprefix src/tidelog/records/kernel/*/,*.py *.pxd *.h)) pyproject.toml setup.py requirements.lock

# Tests start many processes: what they import is compiled once.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo demo-backup cluster migration study docs test check format interop soak bench lock clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

install: $(STAMP) ## make .venv with everything in it, the kernels compiled if there is a C compiler

$(STAMP): $(SOURCES)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Tidelog needs Python 3.11 or newer; $$($(PYTHON) --version) was found. Try: make PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || { echo "making $(VENV) ..."; $(PYTHON) -m venv $(VENV); }
	@echo "installing locked dependencies (PySpark is 450 MB; the first time takes a minute or two) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@echo "installing tidelog ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --force-reinstall -e .
	@$(BIN)/tidelog --version
	@touch $@

demo: $(STAMP) ## 336,776 real flights: import, find, read a day exactly, replay on Spark, draw
	@$(BIN)/python demo/flights.py

demo-backup: $(STAMP) ## three brokers, one killed, then bad data: a backup that follows, and Kafka as it was a moment before (needs Java and Maven; a minute)
	@$(BIN)/python demo/backup.py

cluster: $(STAMP) ## three brokers under Apache Kafka's controllers: one is killed in a load, and what clients see (needs Java and Maven)
	@$(BIN)/python demo/cluster.py $(if $(BROKERS),--brokers $(BROKERS))

migration: $(STAMP) ## KIP-32's migration plan with brokers of 0.9.0.1, 0.10.0.1, 2.4.1 and Tidelog's, clients running (needs Java and Maven; five to ten minutes)
	@$(BIN)/python -m tests.migration

study: $(STAMP) ## the claims of KIP-32 and KIP-33, measured on Spark: study/report.html (a few minutes)
	@$(BIN)/python -m studies --out study/report.html

docs: $(STAMP) ## the documents as a site: site/index.html
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-docs.lock
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --site-dir site

test: $(STAMP) ## the test suite (four to five minutes on two cores)
	@$(BIN)/python -m pytest -n 5 -q -m "not interop"

check: $(STAMP) ## format, lint, strict types, import layers
	@$(BIN)/ruff format --check --quiet . && echo "format      ok"
	@$(BIN)/ruff check --quiet . && echo "lint        ok"
	@$(BIN)/mypy && echo "types       ok"
	@$(BIN)/lint-imports --no-logo > $(VENV)/layers.log 2>&1 && echo "layers      ok" || { cat $(VENV)/layers.log; exit 1; }

format: $(STAMP) ## format the code
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --quiet --fix .

interop: $(STAMP) ## tests against real Apache Kafka, its clients, Spark from end to end: those that each change must pass (Kafka needs Java and Maven)
	@$(BIN)/python -m tests.interop

interop-all: $(STAMP) ## make interop, and further releases, modes, and seeds of its tests
	@$(BIN)/python -m tests.interop --all

# What TIDELOG_SOAK makes longer; Hypothesis marks the rest of it.
SOAK = TIDELOG_SOAK=1 $(BIN)/python -m pytest -n 2 -q --fsync=real -o faulthandler_timeout=3600
SOAKED = $(sort $(shell grep -rlE 'TIDELOG_SOAK|IS_SOAK|run_state_machine_as_test' tests --include='test_*.py' --exclude=test_soak.py))

soak: $(STAMP) ## hundreds of killed processes and lost disks, thousands of random histories, rules broken on purpose, hundreds of faults of a cluster (some hours)
	@$(SOAK) -m "not interop" $(SOAKED) tests/crash tests/broker/eos
	@$(SOAK) -m "hypothesis and not interop" $(SOAKED:%=--ignore=%) --ignore=tests/crash --ignore=tests/broker/eos
	@$(SOAK) -m interop $(SOAKED)
	@$(BIN)/python -m tests.mutation
	@$(BIN)/python -m tests.migration
	@$(BIN)/python -m tests.cluster_soak --brokers tidelog --faults 200
	@$(BIN)/python -m tests.cluster_soak --brokers mixed --faults 60
	@$(BIN)/python -m tests.cluster_soak --brokers mixed-4.2 --faults 60
	@$(BIN)/python -m tests.backup_soak --moments 500

bench: $(STAMP) ## ratios against the real peers, each pair in one run
	@$(BIN)/python -m bench

lock: $(STAMP) ## resolve the dependencies afresh into requirements.lock
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --upgrade --extra dev pyproject.toml -o requirements.lock
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --upgrade --extra docs -c requirements.lock pyproject.toml -o requirements-docs.lock

clean: ## remove .venv and what was built
	@rm -rf $(VENV) build demo/out bench/out site src/*.egg-info; find src -name '*.so' -delete -o -name '*.c' -delete
