"""What pytest loads: the options, and one of the two plugins where lanes are asked for. Without --lanes nothing changes."""

from __future__ import annotations

import pytest

from tests.lanes import schedule
from tests.lanes.controller import Controller, workers
from tests.lanes.worker import SHAPES, Worker

# Each costs the whole time of collecting; what crashes more often than that is no accident.
MOST_CRASHES = 4


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("lanes", "tests in lanes, each with a lab of its own")
    group.addoption(
        "--lanes",
        metavar="LANES",
        help="Lanes side by side, as NAME:SHAPE+SHAPE,...: w:wide+older+small,a:small,u:none. The name is that of the lane's lab, "
        "the shapes are in the order in which the lane takes them; none is for tests without a lab. c:small@u helps once lane u is done.",
    )
    group.addoption("--durations-record", action="store_true", help="Write into tests/durations.json how long tests took that passed.")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        if "lanes" in config.workerinput:
            config.pluginmanager.register(Worker(config), "lanes-worker")
        return
    text = config.getoption("--lanes")
    if not text or config.getoption("collectonly"):
        return
    try:
        lanes = schedule.parse(text, SHAPES.values())
    except schedule.LanesError as error:
        raise pytest.UsageError(str(error)) from error
    if not hasattr(config.option, "tx"):
        raise pytest.UsageError("--lanes needs pytest-xdist")
    config.option.dist, config.option.tx = "loadscope", workers(lanes)
    if config.option.maxworkerrestart is None:
        config.option.maxworkerrestart = str(MOST_CRASHES)
    config.option.durations = config.option.durations or 10
    config.pluginmanager.register(Controller(config, lanes), "lanes-controller")
