# `make run` and `make test` do all the set-up on a fresh machine; everything goes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= auto
# Other frameworks live in interpreters of their own, kept between runs: their pins conflict.
JAX := jax==0.10.2
TENSORFLOW := tensorflow-cpu==2.21.0
MINDSPORE := mindspore==2.10.0
# The tests start hundreds of processes, each of which would compile the whole package again.
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help
.PHONY: help run test test-fast test-long test-frameworks test-lowest check format docs benchmarks soak mutation clean debian-packages

help: ## what there is to make
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# A stamp newer than pyproject.toml means: installed as declared now.
$(VENV)/.run: pyproject.toml
	@echo "installing into $(VENV): a minute or two, silent"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.test: pyproject.toml $(VENV)/.run
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	@touch $@

$(VENV)/.check: pyproject.toml $(VENV)/.run
	$(BIN)/python -m pip install --quiet --editable '.[check]'
	@touch $@

.venv-jax .venv-tensorflow .venv-mindspore: .venv-%: .venv-%/.made
.venv-jax/.made: PACKAGE = $(JAX)
.venv-tensorflow/.made: PACKAGE = $(TENSORFLOW)
.venv-mindspore/.made: PACKAGE = $(MINDSPORE)
.venv-%/.made: Makefile
	@echo "installing $(PACKAGE) into .venv-$*: minutes, silent"
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python -m pip install --quiet numpy '$(PACKAGE)'
	@touch $@

# What the tests start for real: a browser, a Slurm cluster (with accounting), Grid Engine, containers.
# Daemons that a package starts on installation don't matter: the tests' own are private.
DEBIAN_COMMANDS := chromium slurmctld slurmd sbatch munged ip ps slurmdbd mariadbd mariadb qsub sge_qmaster sge_execd podman runc pdftotext bindfs mksquashfs squashfuse faketime debootstrap
DEBIAN_PACKAGES := chromium fonts-dejavu-core \
  slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge iproute2 procps \
  slurmdbd mariadb-server-core mariadb-client-core \
  gridengine-master gridengine-exec gridengine-client \
  podman runc poppler-utils python3-simgrid \
  bindfs squashfs-tools squashfuse strace faketime debootstrap

debian-packages: export PATH := $(PATH):/usr/sbin:/sbin
debian-packages: # installs them all as soon as one of the commands is missing
	@for command in $(DEBIAN_COMMANDS) simgrid; do \
	  command -v $$command >/dev/null && continue; \
	  [ $$command = simgrid ] && dpkg -s python3-simgrid >/dev/null 2>&1 && continue; \
	  echo "no $$command: installing the Debian packages of the tests"; \
	  sudo=$$([ $$(id -u) = 0 ] || echo sudo); \
	  $$sudo apt-get -qq update && \
	  $$sudo env DEBIAN_FRONTEND=noninteractive \
	    apt-get -qq install -y --no-install-recommends $(DEBIAN_PACKAGES); \
	  exit; \
	done

run: $(VENV)/.run ## install, run class smoke, report (WORKLOAD=extreme_weather or automl)
	$(BIN)/ai500 run $(if $(WORKLOAD),--workload $(WORKLOAD)) $(ARGS)

test: $(VENV)/.test .venv-jax debian-packages ## all tests but the long ones
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --durations=20 -m "not long and not serial and not frameworks"
	$(BIN)/python -m pytest -m "serial and not long"

test-fast: $(VENV)/.test ## unit and paper tests that train nothing and need no Debian package
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m "not long and not serial and not slow" tests/unit tests/paper

test-long: $(VENV)/.test debian-packages ## the tests that take minutes each
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup --durations=40 -m "long and not serial and not frameworks"
	$(BIN)/python -m pytest --durations=20 -m "serial and long and not frameworks"

test-frameworks: $(VENV)/.test .venv-jax .venv-tensorflow .venv-mindspore ## TensorFlow, MindSpore and JAX
	$(BIN)/python -m pytest tests/frameworks -m "long or not long"

# Old typer and new click warn of each other; the warnings are not errors there.
test-lowest: .venv-lowest/.made ## unit and paper tests with the lowest declared versions (torch as allowed)
	.venv-lowest/bin/python -m pytest -W ignore::DeprecationWarning -n $(JOBS) -m "not long and not serial and not slow" tests/unit tests/paper

.venv-lowest/.made: pyproject.toml tests/lowest.py
	@echo "installing the lowest declared versions into .venv-lowest: minutes, silent"
	$(PYTHON) -m venv .venv-lowest
	$(PYTHON) tests/lowest.py > .venv-lowest/constraints.txt
	.venv-lowest/bin/python -m pip install --quiet --constraint .venv-lowest/constraints.txt --editable '.[nvidia,parquet,sign]' \
	  hypothesis mlperf-logging pycocotools pytest pytest-timeout pytest-xdist 'pandas<2.3'
	@touch $@

soak: $(VENV)/.test ## FAULTS=200 random faults in MINUTES=60, with SEED=1: identical results, or clear errors
	$(BIN)/python -m tests.soak --faults $(or $(FAULTS),200) --minutes $(or $(MINUTES),60) --seed $(or $(SEED),1)

mutation: $(VENV)/.test ## share of MUTANTS=70 planted defects, drawn with SEED=1, that unit tests detect
	$(BIN)/python -m tests.mutation --mutants $(or $(MUTANTS),70) --seed $(or $(SEED),1)

check: $(VENV)/.check ## lint, format, layers, strict types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

format: $(VENV)/.check ## let ruff format and fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: export NO_MKDOCS_2_WARNING := 1
docs: $(VENV)/.test ## write the generated pages again, build the documentation into site/
	$(BIN)/python docs/generate.py
	$(BIN)/python -m mkdocs build --strict --quiet

benchmarks: $(VENV)/.test ## the measurements that the issues name
	for file in benchmarks/*.py; do $(BIN)/python $$file || exit 1; done

clean: ## remove what was installed; runs/ stays
	rm -rf $(VENV) .venv-* site .mypy_cache .ruff_cache .pytest_cache
