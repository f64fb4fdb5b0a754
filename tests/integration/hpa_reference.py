"""The real HorizontalPodAutoscaler controller, asked about single cases: its files from the module k8s.io/kubernetes, compiled with
hpa_reference.go into a program of its own. No cluster, no host."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.lab.binaries import _environment, _go, _go_line, _module, architecture
from tests.lab.tools import CACHE, locked, long_step, run

_FILES = ("horizontal.go", "replica_calculator.go", "rate_limiters.go")
_HARNESS = Path(__file__).with_suffix(".go")
# What differs by version: 1.32 has its tolerance in the calculator.
_OLD = "a.replicaCalc = NewReplicaCalculator(m, lister, one.Tolerance, seconds(one.CPU), seconds(one.Readiness))"
_NEW = "a.tolerance = one.Tolerance\n\ta.replicaCalc = NewReplicaCalculator(m, lister, seconds(one.CPU), seconds(one.Readiness))"
_TUNE = """package podautoscaler

import corelisters "k8s.io/client-go/listers/core/v1"

func tune(a *HorizontalController, m *metrics, lister corelisters.PodLister, one question) {{
\t{line}
}}
"""
_MAIN = 'package main\n\nimport "lab/podautoscaler"\n\nfunc main() { podautoscaler.Answer() }\n'


def reference(version: str) -> Path:
    """The program for one version of Kubernetes (1.36.3); compiles it once."""
    folder = CACHE / "hpa-reference" / f"v{version}-{architecture()}"
    program = folder / f"reference-{_fingerprint()}"
    if program.exists():
        return program
    with (
        locked(CACHE / "hpa-reference.lock", "another process compiles the autoscaler; waiting for it"),
        long_step(f"compiling the autoscaler of Kubernetes {version}"),
    ):
        go = _go()
        module = _module(go, "k8s.io/kubernetes", f"v{version}")
        source = module / "pkg/controller/podautoscaler"
        own = folder / "podautoscaler"
        own.mkdir(parents=True, exist_ok=True)
        for name in _FILES:
            (own / name).write_bytes((source / name).read_bytes())
        shutil.copy(_HARNESS, own / "harness.go")
        old = "tolerance float64, cpuInitializationPeriod" in (source / "replica_calculator.go").read_text()
        (own / "tune.go").write_text(_TUNE.format(line=_OLD if old else _NEW))
        (folder / "main.go").write_text(_MAIN)
        minor, patch = version.split(".")[1:]
        staging = re.findall(r"^\s*(k8s\.io/\S+) => \./staging/", (module / "go.mod").read_text(), re.MULTILINE)
        replaced = "".join(f"replace {name} => {name} v0.{minor}.{patch}\n" for name in staging)
        (folder / "go.mod").write_text(f"module lab\n\ngo {_go_line(module)}\n\nrequire k8s.io/kubernetes v{version}\n{replaced}")
        environment = {**_environment(), "CGO_ENABLED": "0"}
        run(go, "mod", "tidy", env=environment, cwd=folder)
        run(go, "build", "-trimpath", "-ldflags=-s -w", "-o", program, ".", env=environment, cwd=folder)
    return program


def _fingerprint() -> str:
    return hashlib.sha256(_HARNESS.read_bytes()).hexdigest()[:12]


def answers(version: str, cases: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What the controller does in each case (hpa_reference.go has the shapes)."""
    text = "".join(json.dumps(one) + "\n" for one in cases)
    done = subprocess.run([reference(version)], input=text, capture_output=True, text=True, timeout=600, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]
