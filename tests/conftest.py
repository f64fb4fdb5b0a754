"""Fixtures for all tests: the lab, and hypothesis' profiles."""

from __future__ import annotations

import os

import hypothesis
import pytest

from tests.lab import Lab

# Lanes (--lanes) with a lab each; without that option it does nothing.
pytest_plugins = ["tests.lanes.plugin"]

hypothesis.settings.register_profile("default", deadline=None)
# The same examples in each run of CI: what fails there fails here.
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="session")
def lab(request: pytest.FixtureRequest) -> Lab:
    """The running lab. In a lane it is the lane's own, which is whole when a module begins (tests/lanes). Else, where DAYTWO_LAB=1
    says it must be there, its absence is a failure and no skip, and the tests begin with pristine nodes: a demo, or tests that were
    interrupted, leave gates behind."""
    lane = request.config.pluginmanager.get_plugin("lanes-worker")
    if lane and lane.lab:
        return lane.lab
    found = Lab()
    if not found.exists or not found.ssh_config.exists():
        if os.environ.get("DAYTWO_LAB") == "1":
            pytest.fail("the lab is not up: run `make lab`")
        pytest.skip("the lab is not up: run `make lab`")
    if os.environ.get("DAYTWO_LAB") == "1":
        found.reset()
    return found
