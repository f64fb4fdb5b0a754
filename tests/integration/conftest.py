"""For every module of this folder, which may run beside others that have labs of their own on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.integration import operator
from tests.lab import Lab, binaries


@pytest.fixture(scope="module", autouse=True)
def own_records(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What runs record on the operator's side is the module's own, and nobody's home has it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("records")))
        yield


@pytest.fixture(scope="module")
def older(lab: Lab) -> None:
    if lab.version != binaries.OLDER_VERSION:
        why = f"the lab runs Kubernetes {lab.version}, and this needs {binaries.OLDER_VERSION} (KUBE_VERSION)"
        (pytest.fail if os.environ.get("DAYTWO_LAB") == "1" else pytest.skip)(why)


@pytest.fixture(scope="module")
def forgotten(lab: Lab) -> Iterator[None]:
    """No record of this module's runs is left on a node."""
    yield
    operator.forget(lab)


@pytest.fixture(autouse=True)
def nothing_started(request: pytest.FixtureRequest) -> Iterator[None]:
    """No test begins with a command of another one, whichever module that is in."""
    lab: Lab | None = request.getfixturevalue("lab") if "lab" in request.fixturenames else None
    yield
    if lab:
        operator.end_started(lab)
