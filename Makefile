# daytwo: `make` lists the targets. Everything runs on a fresh Debian machine as root; what is missing gets installed.
SHELL := /bin/bash
VENV := .venv
PYTHON := $(VENV)/bin/python
READY := $(VENV)/.ready
export PYINFRA_PROGRESS := off
# Empty: each process keeps the bytecode that it compiled. Tests start pyinfra hundreds of times.
export PYTHONDONTWRITEBYTECODE :=
# Read by the API server and the kubelets, Alpha and off since 1.32.
GATE ?= PodLogsQuerySplitStreams=true

# The lanes of `make test`, each with a lab of its own: its name, and the shapes that it takes, in this order (tests/lanes). Three labs keep
# two cores busy; lane u gives way to them. Lane c begins when u has ended and the wide lab is gone, and needs less than that.
ALL ?= w:wide+older+small,a:small,b:small,u:none,c:small@u
# One lab after the other, for a machine that has no room for more: make test LANES='$(SMALL)'.
SMALL ?= w:wide+older+small,u:none
LANES ?= $(ALL)
# make test DURATIONS=record: tests/durations.json says from then on how long tests take.
RECORD = $(if $(filter record,$(DURATIONS)),--durations-record)
# What `make bench` measures: numbers of hosts, round trips in ms, jobs, tools, runs of each (tests/benchmarks/README.md).
HOSTS ?= 10,100
# Of the clusters that plans are made for.
NODES ?= 100,200,500,1000
LATENCY ?= 10
JOBS ?= status,plan
WITH ?= daytwo,ansible
RUNS ?= 5
# 1: nodes answer reading jobs as recorded, so that they need little of the shared processor.
REPLAY ?= 1

.PHONY: help install demo picture test fetch tools test-full lint test-unit test-binaries test-lab test-wide test-older lab lab-metrics lab-down wide-lab vagrant-up vagrant-test vagrant-down bench
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(READY) ## daytwo and what it needs, in .venv; then: . .venv/bin/activate, and the command daytwo lists all deploys

demo: lab ## a real cluster on this machine, a feature gate turned on in it, and the proof
	$(PYTHON) -m tests.lab.show $(VENV)/bin/pyinfra inventories/lab.py deploys/status.py -y
	$(PYTHON) -m tests.lab.show $(VENV)/bin/pyinfra inventories/lab.py deploys/feature_gates.py --data feature_gates=$(GATE) -y
	$(PYTHON) -m tests.lab.show $(VENV)/bin/pyinfra inventories/lab.py deploys/status.py -y

picture: lab ## record docs/picture.svg again, from a real run
	$(PYTHON) -m tests.lab.picture docs/picture.svg

test: lint tools fetch ## everything CI runs; 33 minutes at most on two cores (CONTRIBUTING.md)
	@echo "== tests"
	$(PYTHON) -m pytest tests/unit tests/integration --lanes=$(LANES) -m "not slow" $(RECORD)

lint: $(READY) tools ## ruff, mypy, import-linter, shellcheck
	@echo "== lint"
	$(VENV)/bin/mypy & types=$$!; \
	$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check . && $(VENV)/bin/lint-imports --no-cache; rest=$$?; \
	wait $$types && exit $$rest

test-unit: $(READY) tools ## tests that need no host
	@echo "== unit tests"
	$(PYTHON) -m pytest tests/unit -q -m "not slow"

test-binaries: fetch ## daytwo's verdict on every feature gate beside the real binaries' of two minors; no host
	@echo "== verdicts on feature gates"
	$(PYTHON) -m pytest tests/integration -v -raP --durations=5 -m binaries

test-lab: lab tools ## tests on the real cluster
	@echo "== tests in the lab"
	DAYTWO_LAB=1 $(PYTHON) -m pytest tests/integration -v -raP --durations=15 -m "not slow and not wide and not older and not binaries"

test-wide: wide-lab ## tests on three control planes and five workers; the lab is another one then
	@echo "== tests in the wide lab"
	DAYTWO_LAB=1 $(PYTHON) -m pytest tests/integration -v -raP --durations=15 -m "wide and not slow"
	@$(PYTHON) -m tests.lab down

test-older: fetch ## tests on the older minor of Kubernetes, in one lane; its lab is made, and taken down
	@echo "== tests on the older minor"
	$(PYTHON) -m pytest tests/integration --lanes=w:older -m "older and not slow"

fetch: $(READY) # Kubernetes' binaries of both minors: lanes would wait for each other's
	@$(PYTHON) -m tests.lab fetch

tools: # what the tests call, besides Python
	@for tool in shellcheck curl git strace faketime chromium; do command -v $$tool >/dev/null || missing="$$missing $$tool"; done; \
	[ -z "$$missing" ] || (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing)

test-full: test ## everything CI runs, and what takes longer (hours)
	$(PYTHON) -m pytest tests/unit tests/integration --lanes=$(LANES) -m slow $(RECORD)

wide-lab: $(READY)
	@$(PYTHON) -m tests.lab up --control-planes 3 --workers 5 || ($(PYTHON) -m tests.lab down && $(PYTHON) -m tests.lab up --control-planes 3 --workers 5)

lab: $(READY) ## a running cluster on this machine: cp1, w1, w2 (more: CONTROL_PLANES=3 WORKERS=5)
	@$(PYTHON) -m tests.lab up

lab-metrics: lab ## the lab with what metrics-server needs: its image, built once, and a network between pods
	@$(PYTHON) -m tests.lab metrics

lab-down: $(READY) ## remove everything that the labs of this checkout made
	@$(PYTHON) -m tests.lab down --all

bench: $(READY) ## what plans cost by the size of the cluster; daytwo and Ansible with many simulated hosts on this machine (tests/benchmarks/README.md)
	@$(PYTHON) -m tests.benchmarks plans --nodes $(NODES)
	@$(PYTHON) -m tests.benchmarks run --hosts $(HOSTS) --latency $(LATENCY) --jobs $(JOBS) --with $(WITH) --runs $(RUNS) --replay $(REPLAY)

vagrant-up: $(READY) ## real virtual machines, cp1 and w1, with their own kernels (tests/vagrant/README.md)
	@$(PYTHON) -m tests.vagrant up

vagrant-test: $(READY) ## the deploys against them, one rebooted in mid-change; then they are taken down
	@$(PYTHON) -m tests.vagrant test

vagrant-down: $(READY) ## remove the machines, and all that was started for them
	@$(PYTHON) -m tests.vagrant down

$(READY): requirements.txt
	@python3 -c 'import venv, ensurepip' 2>/dev/null || (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3 python3-venv)
	python3 -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@
