"""The desired state from the inventory's data, checked by a pydantic model: of one host, or of the cluster as all hosts have it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from roles.engine.inputs.values import sentences, unclear_numbers
from roles.engine.transaction import Refusal

#: The inventory's data of one host, by key; None: not set.
Data = Callable[[str], Any]
#: The errors of a model in sentences, from the error and the values.
Words = Callable[[ValidationError, Mapping[str, Any]], list[str]]
M = TypeVar("M", bound=BaseModel)


def read_model(host: str, data: Data, model: type[M]) -> M:
    """The keys of a model in a host's data. Raises Refusal with all problems."""
    return _checked(host, model, _given(data, model), _sentences)


def read_host(host: str, data: Data, model: type[M], any_of: Collection[str]) -> M | None:
    """As read_model; None if the host has none of the keys `any_of`."""
    return read_model(host, data, model) if _given(data, model).keys() & set(any_of) else None


def read_common(hosts: Iterable[tuple[str, Data]], model: type[M], way_out: str, words: Words | None = None) -> tuple[str, M]:
    """The keys of a model in the data of all hosts, and the host that has the first of them.

    They belong to the cluster or to the run: hosts that have a key must have the same value, else `way_out` says what to do. Raises
    Refusal with all problems.
    """
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    differences: dict[str, str] = {}
    first = ""
    for host, data in hosts:
        first = first or host
        for key, value in _given(data, model).items():
            origin.setdefault(key, host)
            if values.setdefault(key, value) != value:
                differences.setdefault(key, f"{key} differs between {origin[key]}{_short(values[key])} and {host}{_short(value)}")
    where = next(iter(origin.values()), first)
    if differences:
        raise Refusal(where, "; ".join(differences.values()), way_out)
    return where, _checked(where, model, values, words or _sentences)


def _short(value: Any) -> str:
    return "" if isinstance(value, Mapping | list | tuple) else f" ({value})"


def _given(data: Data, model: type[BaseModel]) -> dict[str, Any]:
    return {key: value for key in model.model_fields if (value := data(key)) is not None}


def _sentences(error: ValidationError, _: Mapping[str, Any]) -> list[str]:
    return sentences(error)


def _checked(host: str, model: type[M], values: Mapping[str, Any], words: Words) -> M:
    if unclear := unclear_numbers(model, values):
        raise Refusal(host, "; ".join(unclear))
    try:
        return model(**values)
    except ValidationError as error:
        raise Refusal(host, "; ".join(words(error, values))) from None
