# `make help` lists the targets. `make demo` and `make test` do everything from a bare checkout.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
CMAKE  := $(BIN)/cmake
export PATH := $(CURDIR)/$(BIN):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Variables of the shell must not change which tests run, or on which code. Options for pytest: ARGS="...".
unexport PYTEST_ADDOPTS PYTEST_PLUGINS PYTEST_DISABLE_PLUGIN_AUTOLOAD PYTHONPATH PYTHONHOME PYTHONOPTIMIZE PYTHONWARNINGS
# Processes share compiled modules instead of compiling each module again.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/build/pycache

NATIVE  := $(wildcard native/*/*.hpp native/*/*.cpp native/*/*/*.hpp native/*/*/*.cpp)
PYTHONS := $(wildcard src tests bench examples)

.DEFAULT_GOAL := help
.PHONY: help venv build check test cluster-tools pytest demo cluster-demo lint format explore explore-slice torture nightly declarative bench fuzz fuzz-channel fuzz-service fuzz-wire docs lock clean FORCE

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 24

venv: $(VENV)/.locked ## the virtual environment, with every dependency of requirements.lock

# One at a time: a second `make` waits, then finds the environment ready.
$(VENV)/.locked: requirements.lock
	@flock requirements.lock .ci/environment $(PYTHON) $(VENV)

build: build/.built ## compile the extension and install the package in place

# The list of sources: it changes when a source is added or removed, which no file's timestamp shows.
build/sources: FORCE
	@mkdir -p build
	@echo $(sort $(wildcard native/holdfast/*/* native/bindings/* native/bindings/*/*)) | cmp -s - $@ || \
	    echo $(sort $(wildcard native/holdfast/*/* native/bindings/* native/bindings/*/*)) > $@

build/.built: $(VENV)/.locked pyproject.toml CMakeLists.txt build/sources $(filter native/holdfast/% native/bindings/%,$(NATIVE))
	@flock build/sources .ci/progress build "compiling the core and its bindings with $${CXX:-g++}" \
	    --count '\[\d+/(?P<total>\d+)\] Building CXX object \S*?(?P<name>[\w.]+)\.o' -- \
	    $(BIN)/pip install --verbose --no-build-isolation --no-deps --no-index --editable .
	@touch $@

# Three processes for two cores: tests spend time waiting for Spark, for processes and for connections.
PYTEST := $(BIN)/python -m pytest --dist loadscope --no-loadscope-reorder

check: build/.built ## about a minute: unit, conformance and simulation; no process, compiler or Java
	@$(PYTEST) -n 3 -q $(if $(findstring tests/,$(ARGS)),,tests/unit tests/conformance tests/simulation) $(ARGS)

test: ## a slice of everything: environment, build, linters, explorer, all folders of tests
	@.ci/stages venv build cluster-tools 'lint explore-slice' pytest

nightly: ## everything, at any length, with other seeds every night; installs the tools that it needs
	@mkdir -p build; flock --nonblock --close --conflict-exit-code 75 build/nightly.lock .ci/nightly; status=$$?; \
	    test $$status != 75 || echo "make nightly: another one runs in this checkout; wait until it has ended" >&2; exit $$status

cluster-tools: ## Corosync and iproute2 for tests/corosync, from the distribution's packages
	@.ci/cluster-tools

pytest: build/.built
	@$(PYTEST) -n 3 $(ARGS)

demo: build ## run a rig, a broker and Spark while each of them is killed
	@$(BIN)/holdfast demo

cluster-demo: build ## run three brokers while one is killed and one is cut off; needs root and Corosync
	@$(BIN)/holdfast cluster demo $(ARGS)

lint: venv ## ruff, clang-format and mypy --strict; changes nothing
	@failed=; for tool in "ruff check" "ruff format --check" \
	    $(if $(NATIVE),"clang-format --dry-run -Werror $(NATIVE)") "mypy $(PYTHONS)"; do \
	    $(BIN)/$$tool || failed="$$failed $${tool%% *}"; \
	done; test -z "$$failed" || { echo "lint: see$$failed"; exit 1; }

format: venv ## rewrite the sources as the linters want them
	$(BIN)/ruff check --fix-only --quiet
	$(BIN)/ruff format
	$(if $(NATIVE),$(BIN)/clang-format -i $(NATIVE))

# One at a time, also beside the tests that build it (tests/kit/queue/mutants.py).
build/model/explore: $(VENV)/.locked FORCE
	@mkdir -p build/model
	@test -f build/model/build.ninja || flock build/model/lock \
	    $(CMAKE) -S . -B build/model -G Ninja -DHOLDFAST_MODEL=ON -DCMAKE_BUILD_TYPE=Release > /dev/null
	@MAKEFLAGS= flock build/model/lock $(CMAKE) --build build/model

explore-slice: build/model/explore
	@also=$$($(BIN)/python -m tests.kit.queue.kept_spaces) && \
	    build/model/explore --slice --jobs 2 --json build/model/slice.json $$also

explore: build/model/explore ## exhaust the big model spaces and print their sizes; options with ARGS="..."
	@build/model/explore --all --json build/model/all.json $(ARGS) || { status=$$?; \
	    test -z "$$HOLDFAST_NIGHTLY" || $(BIN)/python -m tests.kit.queue.kept_spaces --keep build/model/all.json; \
	    exit $$status; }

torture: build ## kill storms, of any size: ARGS="--kills 100000", --broker, --server, --cluster, --sink, --source, --months
	@$(BIN)/python -m tests.kit.torture $(ARGS)

# Packages that only `spark-pipelines` needs; so they are not in requirements.lock.
declarative: build ## run the declared pipeline of `pipeline init` by spark-pipelines, twice
	@test -d build/declarative || $(BIN)/pip install --quiet --no-deps --target build/declarative \
	    grpcio-status==1.85.1 googleapis-common-protos==1.76.0 zstandard==0.25.0
	@PYTHONPATH="$(CURDIR)/build/declarative" $(BIN)/python -m tests.kit.spark.declarative

fuzz: build ## a hostile peer overwrites every word of a queue; options with ARGS="..."
	@$(BIN)/python -m tests.kit.queue.fuzz $(ARGS)

fuzz-channel: build ## a hostile peer overwrites every word of a channel; options with ARGS="..."
	@$(BIN)/python -m tests.kit.channel.fuzz $(ARGS)

fuzz-service: build ## a hostile peer overwrites every word of a service; options with ARGS="..."
	@$(BIN)/python -m tests.kit.service.fuzz $(ARGS)

fuzz-wire: build ## any bytes as the input of a connection, guided by coverage; needs clang (.ci/nightly-tools)
	@$(BIN)/python -m tests.kit.server.fuzz_wire $(ARGS)

bench: build ## measure against the peers; options with ARGS="..."
	@$(BIN)/holdfast bench queue $(ARGS)

docs: venv ## the documentation site, in site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# One lock for every platform and Python version. It has no index addresses, so that any mirror serves.
lock: venv ## renew requirements.lock from pyproject.toml
	@$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	    --no-emit-index-url --no-header --extra dev --extra bench --extra server --extra spark --output-file requirements.lock pyproject.toml

clean: ## remove build results and the virtual environment
	rm -rf build site $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis

FORCE:
