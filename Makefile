# daytwo: `make` lists the targets. Everything runs on a fresh Debian machine as root; what is missing gets installed.
SHELL := /bin/bash
VENV := .venv
PYTHON := $(VENV)/bin/python
READY := $(VENV)/.ready
export PYINFRA_PROGRESS := off
# Read by the API server and the kubelets, Alpha and off since 1.32.
GATE ?= PodLogsQuerySplitStreams=true

.PHONY: help demo picture test test-full lint test-unit test-binaries test-lab test-wide test-resize lab lab-down wide-lab vagrant-up vagrant-test vagrant-down
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: lab ## a real cluster on this machine, a feature gate turned on in it, and the proof
	$(PYTHON) -m tests.lab.show $(VENV)/bin/pyinfra inventories/lab.py deploys/status.py -y
	$(PYTHON) -m tests.lab.show $(VENV)/bin/pyinfra inventories/lab.py deploys/feature_gates.py --data feature_gates=$(GATE) -y
	$(PYTHON) -m tests.lab.show $(VENV)/bin/pyinfra inventories/lab.py deploys/status.py -y

picture: lab ## docs/picture.svg anew, from a real run
	$(PYTHON) -m tests.lab.picture docs/picture.svg

test: lint test-unit test-binaries test-lab test-wide test-resize ## everything CI runs

lint: $(READY) ## ruff, mypy, shellcheck
	@echo "== lint"
	@command -v shellcheck >/dev/null || (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq shellcheck)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

test-unit: $(READY) ## tests that need no host
	@echo "== unit tests"
	@for tool in curl strace faketime; do command -v $$tool >/dev/null || MISSING="$$MISSING $$tool"; done; \
	[ -z "$$MISSING" ] || (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $$MISSING)
	$(PYTHON) -m pytest tests/unit -q

test-binaries: $(READY) ## daytwo's verdict on every feature gate beside the real binaries' of two minors; no host
	@echo "== verdicts on feature gates"
	@$(PYTHON) -m tests.lab fetch
	$(PYTHON) -m pytest tests/integration -v -raP --durations=5 -m binaries

test-lab: lab ## tests on the real cluster
	@echo "== tests in the lab"
	@command -v chromium >/dev/null || (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium)
	DAYTWO_LAB=1 $(PYTHON) -m pytest tests/integration -v -raP --durations=15 -m "not slow and not wide and not binaries"

test-wide: wide-lab ## tests on three control planes and five workers; the lab is another one then
	@echo "== tests in the wide lab"
	DAYTWO_LAB=1 $(PYTHON) -m pytest tests/integration -v -raP --durations=15 -m "wide and not slow"
	@$(PYTHON) -m tests.lab down

test-resize: $(READY) ## pods resized in place on Kubernetes 1.32, where the gate for it is off; the lab is another one then
	@echo "== resizing pods where the gate for it is off"
	@$(PYTHON) -m tests.lab down
	@KUBE_VERSION=$$($(PYTHON) -c 'from tests.lab import binaries; print(binaries.OLDER_VERSION)') $(PYTHON) -m tests.lab up
	$(PYTHON) -m pytest tests/integration/test_pod_resize.py -v -raP --durations=15 -k "whole_story or more_than_the_node_has"
	@$(PYTHON) -m tests.lab down

test-full: test ## everything CI runs, and what takes longer (hours)
	@$(PYTHON) -m tests.lab up
	DAYTWO_LAB=1 $(PYTHON) -m pytest tests/integration -v -raP -m "slow and not wide"
	@$(MAKE) wide-lab
	DAYTWO_LAB=1 $(PYTHON) -m pytest tests/integration -v -raP -m "slow and wide"

wide-lab: $(READY)
	@$(PYTHON) -m tests.lab up --control-planes 3 --workers 5 || ($(PYTHON) -m tests.lab down && $(PYTHON) -m tests.lab up --control-planes 3 --workers 5)

lab: $(READY) ## a running cluster on this machine: cp1, w1, w2 (more: CONTROL_PLANES=3 WORKERS=5)
	@$(PYTHON) -m tests.lab up

lab-down: $(READY) ## remove everything the lab made
	@$(PYTHON) -m tests.lab down

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
