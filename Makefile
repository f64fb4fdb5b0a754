# daytwo: `make` lists the targets. Everything runs on a fresh Debian machine as root; what is missing gets installed.
SHELL := /bin/bash
VENV := .venv
PYTHON := $(VENV)/bin/python
READY := $(VENV)/.ready
export PYINFRA_PROGRESS := off
# Read by the API server and the kubelets, Alpha and off since 1.32.
GATE ?= PodLogsQuerySplitStreams=true

.PHONY: help demo picture test no-host with-lab tools test-full lint test-unit test-binaries test-lab test-wide test-resize lab lab-down wide-lab vagrant-up vagrant-test vagrant-down
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: lab ## a real cluster on this machine, a feature gate turned on in it, and the proof
	$(PYTHON) -m tests.lab.show $(VENV)/bin/pyinfra inventories/lab.py deploys/status.py -y
	$(PYTHON) -m tests.lab.show $(VENV)/bin/pyinfra inventories/lab.py deploys/feature_gates.py --data feature_gates=$(GATE) -y
	$(PYTHON) -m tests.lab.show $(VENV)/bin/pyinfra inventories/lab.py deploys/status.py -y

picture: lab ## docs/picture.svg anew, from a real run
	$(PYTHON) -m tests.lab.picture docs/picture.svg

# What needs no host runs beside the labs, on what they leave of the processors: they mostly wait. apt-get, before: one at a time.
test: lint tools lab ## everything CI runs
	@logs=$$(mktemp -d); MAKEFLAGS= $(MAKE) --no-print-directory --jobs=2 no-host with-lab LOGS=$$logs; ended=$$?; echo "== in short"; \
	grep -hE '^(FAILED|ERROR) |^=+ .* in [0-9.]+s|^make.*\*\*\*|^[0-9]+ (passed|failed).* in ' $$logs/*; rm -r $$logs; exit $$ended

no-host with-lab:
	@set -o pipefail; MAKEFLAGS= $(BESIDE_$@) $(MAKE) --no-print-directory $(TESTS_$@) 2>&1 | tee $(LOGS)/$@ | sed -u 's/^/$@: /'
TESTS_no-host := test-unit test-binaries
BESIDE_no-host := nice -n 19
TESTS_with-lab := test-lab test-wide test-resize

lint: $(READY) tools ## ruff, mypy, shellcheck
	@echo "== lint"
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

test-unit: $(READY) tools ## tests that need no host
	@echo "== unit tests"
	$(PYTHON) -m pytest tests/unit -q

test-binaries: $(READY) ## daytwo's verdict on every feature gate beside the real binaries' of two minors; no host
	@echo "== verdicts on feature gates"
	@$(PYTHON) -m tests.lab fetch
	$(PYTHON) -m pytest tests/integration -v -raP --durations=5 -m binaries

test-lab: lab tools ## tests on the real cluster
	@echo "== tests in the lab"
	DAYTWO_LAB=1 $(PYTHON) -m pytest tests/integration -v -raP --durations=15 -m "not slow and not wide and not binaries"

test-wide: wide-lab ## tests on three control planes and five workers; the lab is another one then
	@echo "== tests in the wide lab"
	DAYTWO_LAB=1 $(PYTHON) -m pytest tests/integration -v -raP --durations=15 -m "wide and not slow"
	@$(PYTHON) -m tests.lab down

test-resize: $(READY) ## pods resized in place on Kubernetes 1.32, where the gate for it is off; the lab is another one then
	@echo "== resizing pods where the gate for it is off"
	@$(PYTHON) -m tests.lab down
	@KUBE_VERSION=$$($(PYTHON) -c 'from tests.lab import binaries; print(binaries.OLDER_VERSION)') $(PYTHON) -m tests.lab up
	$(PYTHON) -m pytest tests/integration/test_pod_resize.py -v -raP --durations=15 -k "whole_story or more_than_the_node_has or infeasible"
	@$(PYTHON) -m tests.lab down

tools: # what the tests call, besides Python
	@for tool in shellcheck curl git strace faketime chromium; do command -v $$tool >/dev/null || missing="$$missing $$tool"; done; \
	[ -z "$$missing" ] || (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing)

test-full: test ## everything CI runs, and what takes longer (hours)
	@$(PYTHON) -m tests.lab up
	DAYTWO_LAB=1 $(PYTHON) -m pytest tests/integration -v -raP -m "slow and not wide"
	@$(MAKE) wide-lab
	DAYTWO_LAB=1 $(PYTHON) -m pytest tests/integration -v -raP -m "slow and wide"

wide-lab: $(READY)
	@$(PYTHON) -m tests.lab up --control-planes 3 --workers 5 || ($(PYTHON) -m tests.lab down && $(PYTHON) -m tests.lab up --control-planes 3 --workers 5)

lab: $(READY) ## a running cluster on this machine: cp1, w1, w2 (more: CONTROL_PLANES=3 WORKERS=5)
	@$(PYTHON) -m tests.lab up

lab-down: $(READY) ## remove everything that the labs of this checkout made
	@$(PYTHON) -m tests.lab down --all

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
	@touch $@
