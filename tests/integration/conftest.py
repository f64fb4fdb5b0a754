"""For every module of this folder, which may run beside others that have labs of their own on this machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def own_records(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What runs record on the operator's side is the module's own, and nobody's home has it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("records")))
        yield
