# The developer's commands. `make` lists them; the first that needs it makes the environment.

# The first Python that is new enough and can make virtual environments.
PYTHON ?= $(shell for python in python3.13 python3.12 python3.11 python3; do \
  "$$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
  && { echo "$$python"; break; }; done)

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/made-from-the-lock
TPM_STAMP := $(VENV)/made-for-a-tpm
PKCS11_STAMP := $(VENV)/made-for-pkcs11
RUNTIME := streams/watchword/streams/dev/runtime

EXTRAS := --extra agent --extra kafka --extra server --extra otel --extra testkit --extra dev
COMPILE := $(BIN)/uv pip compile --universal --python-version 3.11 --upgrade --generate-hashes \
  --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" --quiet

.DEFAULT_GOAL := help
.PHONY: help venv tpm pkcs11 run demo test check mypy pyright vectors bench scale cases fuzz faults soak mutants guards docs wheel sbom licences audit fix lock clean

help: ## list the commands
	@sed -nE 's/^([a-z0-9]+):[^#]*## (.*)$$/\1|\2/p' $(MAKEFILE_LIST) \
	  | while IFS='|' read -r name text; do printf '  make %-9s %s\n' "$$name" "$$text"; done

venv: $(STAMP) ## make .venv from requirements.lock, each file checked by its hash

# Every file that pip fetches has its hash in the lock; our own build needs nothing from outside.
$(STAMP): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "needs Python 3.11 or later, with the module venv" >&2; exit 1; }
	test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-index --editable .
	touch $@

tpm: $(TPM_STAMP) ## what talks to a TPM, into .venv; needs libtss2-dev, a C compiler and Python's headers

# Its build is not isolated, so that what builds it has a hash too.
$(TPM_STAMP): $(STAMP) requirements-tpm-build.lock requirements-tpm.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements-tpm-build.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-build-isolation --requirement requirements-tpm.lock
	touch $@

pkcs11: $(PKCS11_STAMP) ## what talks to a hardware module that holds the CA key, into .venv

$(PKCS11_STAMP): $(STAMP) requirements-pkcs11.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements-pkcs11.lock
	touch $@

run: $(STAMP) ## Kafka, PostgreSQL and every process of ours on this machine
	$(BIN)/watchword dev

demo: $(STAMP) ## the same, and machines that join
	$(BIN)/watchword dev --demo

# Two at a time: most tests wait for a server. Each has a Kafka and a PostgreSQL of its own, and both must
# name the tests alike, sets in a name included.
# In the order of the folders: whole deployments come first, so that nobody waits for one of them at the end.
test: $(STAMP) ## all tests but benchmarks and faults; ARGS= goes to pytest
	PYTHONHASHSEED=0 $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

check: $(STAMP) ## formatting, lint, types, who may import whom, and that each test can be collected
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(MAKE) --jobs=2 mypy pyright
	$(BIN)/lint-imports
	mkdir -p build
	$(BIN)/pytest --collect-only -qq -m "" > build/collected.txt || { cat build/collected.txt; exit 1; }

# Both use one processor.
mypy: $(STAMP)
	$(BIN)/mypy schemas handlers streams tests

pyright: $(STAMP)
	$(BIN)/pyright

vectors: $(STAMP) ## the real evidence of ../shared/vectors alone; ARGS="--kind tpm-quote"
	$(BIN)/python -m tests.vectors $(ARGS)

bench: $(STAMP) ## one run, one table, and build/bench.json; 10 minutes; ARGS=--help
	$(BIN)/python -m tests.benchmarks $(ARGS)

scale: $(STAMP) ## 1, 2, 4 workers, 1, 2 gateways, a relay that dies: one table, and build/scale.json; ARGS=--help
	$(BIN)/python -m tests.benchmarks.scale $(ARGS)

cases: $(STAMP) ## what went wrong for others: case, test, verdict; ARGS=--list runs none
	$(BIN)/python -m tests.cases $(ARGS)

fuzz: $(STAMP) ## feed verifiers what nobody made on purpose; SECONDS=10 for each
	$(BIN)/python -m tests.fuzz $(or $(SECONDS),10)

guards: $(STAMP) ## switch each guard off in turn; its test must fail then
	$(BIN)/python -m tests.guards $(ARGS)

# An interrupted run goes on with RUN=its-name; ARGS=--background returns at once.
faults: $(STAMP) ## kill, pause, cut off, fill up, and judge what comes out; SECONDS=600 SEED=1
	$(BIN)/python -m tests.faults --seconds $(or $(SECONDS),600) --seed $(or $(SEED),1) $(if $(RUN),--run $(RUN)) $(ARGS)

mutants: $(STAMP) ## change a verifier in one place at a time; a test must fail then; MODULE=its-path
	$(BIN)/python -m tests.mutants $(or $(MODULE),handlers/watchword/handlers/attestors/join_token/verifier.py) $(ARGS)

# RATE= is records of join.requests a second; without it half of what build/bench.json says.
soak: $(STAMP) ## the same machines for an hour, nothing killed: does anything grow? SECONDS=3600 RATE=
	$(BIN)/python -m tests.soak --seconds $(or $(SECONDS),3600) $(if $(RATE),--rate $(RATE)) $(ARGS)

docs: $(STAMP) ## write the generated reference again, and check that links lead somewhere
	$(BIN)/python tools/write_references.py
	$(BIN)/pytest -q tests/docs

wheel: $(STAMP) ## build the wheel that the image and hosts get, into dist/
	rm -rf dist
	$(BIN)/python -m hatchling build --target wheel

sbom: $(STAMP) ## what the wheel brings with it, as CycloneDX, into build/sbom.cdx.json
	mkdir -p build
	$(BIN)/cyclonedx-py requirements requirements-server.lock --pyproject pyproject.toml --mc-type application \
	  --output-reproducible --output-format JSON --output-file build/sbom.cdx.json

licences: $(STAMP) ## write docs/reference/licences.md again, from what is installed
	$(BIN)/python tools/write_licences.py

audit: $(STAMP) ## ask for advisories on everything that is locked; exit 75 if nobody could be asked
	$(BIN)/python tools/audit.py requirements.lock requirements-server.lock

fix: $(STAMP) ## format, and repair what lint can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# All locks carry hashes and no address; what is shipped is locked to the same versions as what is tested. jgo's own caches stay in this folder.
lock: $(STAMP) ## resolve the dependencies anew: Python's, and Kafka's jars; needs libtss2-dev
	$(COMPILE) pyproject.toml $(EXTRAS) --group test --output-file requirements.lock
	$(COMPILE) pyproject.toml --extra server --extra otel --constraint requirements.lock --output-file requirements-server.lock
	$(COMPILE) --group tpm-build --output-file requirements-tpm-build.lock
	$(COMPILE) pyproject.toml --extra tpm --constraint requirements.lock --output-file requirements-tpm.lock
	$(COMPILE) pyproject.toml --extra pkcs11 --constraint requirements.lock --output-file requirements-pkcs11.lock
	cd $(RUNTIME) && M2_REPO=$(CURDIR)/build/jgo/m2 JGO_CACHE_DIR=$(CURDIR)/build/jgo/cache \
	  $(CURDIR)/$(BIN)/jgo --quiet lock

clean: ## remove the environment, caches and fetched jars; data stay
	rm -rf $(VENV) .jgo build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find schemas handlers streams tests -name __pycache__ -type d -prune -exec rm -rf {} +
