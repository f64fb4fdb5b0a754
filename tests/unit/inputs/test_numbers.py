"""Keys that are numbers: the digits 0 to 9, whoever has read them before."""

from __future__ import annotations

from typing import Annotated

import pytest
from pydantic import Field

from roles.engine.bridge.command_line import data_problems
from roles.engine.inputs import Frozen, read_host, registry
from roles.engine.inputs.values import number_kinds
from roles.engine.transaction import Refusal


class Keys(Frozen):
    seconds: Annotated[int, Field(ge=0)] = 1
    most: Annotated[int, Field(le=5000)] | None = None
    factor: float = 1


@pytest.mark.parametrize("text", ["٣", "1_000", "\uff13", "+5", " 5", "5 ", "-٣", "১২"])
def test_what_pyinfra_would_take_for_a_number_is_refused_on_the_command_line(text: str) -> None:
    (problem,) = data_problems([f"drain_timeout={text}"])
    assert problem.startswith("--data drain_timeout: ") and "digits 0 to 9" in problem and text.strip() not in problem


@pytest.mark.parametrize("text", ["5", "-1", "0", "w1", "1.5", "1e3", "0x10", "r20260131-235900-1a2b", "5m", "٣m", "true", "1" * 5000])
def test_what_pyinfra_would_not_take_for_one_is_left_to_its_key(text: str) -> None:
    assert data_problems([f"key={text}"]) == []


@pytest.mark.parametrize("key", ["seconds", "most"])
@pytest.mark.parametrize("value", [True, False, 5.0, 1000.0, 5.5, float("nan"), "5.0", " 5", "+5", "1_000", "٣", "1e3", "0x10", "", "five"])
def test_a_whole_number_has_one_way_of_writing(key: str, value: object) -> None:
    with pytest.raises(Refusal, match=key):
        read_host("w1", {key: value}.get, Keys, Keys.model_fields)


@pytest.mark.parametrize("value", [True, " 1.5", "1e3", "+1.5", "1_0.5", "inf", "nan", "\u0663.\u0665", "1."])
def test_a_number_with_a_fraction_likewise(value: object) -> None:
    with pytest.raises(Refusal, match="factor"):
        read_host("w1", {"factor": value}.get, Keys, Keys.model_fields)


@pytest.mark.parametrize(
    ("key", "value", "read"), [("seconds", 5, 5), ("most", "05", 5), ("factor", "1.5", 1.5), ("factor", 2, 2), ("factor", 1.5, 1.5)]
)
def test_plain_ones_are_read(key: str, value: object, read: float) -> None:
    assert getattr(read_host("w1", {key: value}.get, Keys, Keys.model_fields), key) == read


def test_the_rule_finds_the_numbers_among_all_keys() -> None:
    """It goes by the types of the models: one that it did not understand would not be checked."""
    assert [number_kinds(Keys, key) for key in Keys.model_fields] == [{int}, {int}, {float}]
    found = {key for one in registry.every_model() for key in one.fields.model_fields if number_kinds(one.fields, key)}
    assert found >= {"drain_timeout", "confirm_timeout", "reboot_timeout", "rollout_timeout", "resize_timeout", "last"}


def test_what_a_key_reads_by_itself_is_its_own_rule() -> None:
    model = next(one.fields for one in registry.every_model() if "target_version" in one.fields.model_fields)
    assert number_kinds(model, "target_version") == set()
