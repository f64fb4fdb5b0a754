"""What an API answers has bounds: pages, objects, bytes, depth; and an answer of another form is an ApiError."""

from __future__ import annotations

import http.client
import io
from typing import Any, cast

import pytest

from roles.engine.api import Api, errors, list_objects
from roles.engine.transaction import mask_text
from roles.engine.tunnels import Tunnel, tunnel
from roles.engine.tunnels.etcd import _object


class Answering(Api):
    """Each GET has the next of these answers, and the last one for ever."""

    def __init__(self, *bodies: bytes) -> None:
        super().__init__("cp1")
        self.bodies, self.asked = list(bodies), 0

    def _get(self, path: str, timeout: float) -> bytes:
        self.asked += 1
        assert self.asked < 5000, "it never ends"
        return self.bodies.pop(0) if len(self.bodies) > 1 else self.bodies[0]


def page(after: str) -> bytes:
    return b'{"items":[{"metadata":{"name":"x"}}],"metadata":{"continue":"%s"}}' % after.encode()


def test_a_list_with_the_same_page_again_ends() -> None:
    api = Answering(page("again"))
    with pytest.raises(errors.Unusable, match="the list does not end"):
        list_objects(api, "/api/v1/pods")
    assert api.asked == 2


def test_a_list_with_ever_new_pages_ends() -> None:
    api = Answering(*(page(f"p{number}") for number in range(4000)))
    with pytest.raises(errors.Unusable, match="the list does not end"):
        list_objects(api, "/api/v1/pods")
    assert api.asked < 2100


def test_an_ordinary_list_has_all_its_pages() -> None:
    assert len(list_objects(Answering(page("a"), page("b"), page("")), "/api/v1/pods")) == 3


@pytest.mark.parametrize(
    "body",
    [
        b'{"items":[null]}', b'{"items":["x"]}', b'{"items":[{"metadata":null}]}', b'{"items":{"a":1}}', b'{"items":"abc"}',
        b'{"kind":"Status","status":"Failure"}', b"[]", b'{"items":[{"metadata":{"name":"w1"}}', b'{"items":' + b"[" * 200_000,
        b'{"items":[{"metadata":{"name":"w","generation":1e999}}]}', b'{"items":[],"metadata":[]}'.replace(b"[]}", b"[1]}"),
    ],
)  # fmt: skip
def test_an_answer_of_another_form_is_an_api_error(body: bytes) -> None:
    with pytest.raises(errors.ApiError):
        list_objects(Answering(body), "/api/v1/nodes")


def test_deep_errors_of_an_api_are_errors_still() -> None:
    deep = b'{"kind":"Status","details":{"causes":' + b"[" * 200_000
    for status in (403, 409, 429, 500, 503):
        assert isinstance(errors.by_status("cp1", "/api/v1/pods", status, deep), errors.ApiError)
    assert _object(deep) == {} and mask_text("[" * 1000)


class Body(io.BytesIO):
    """A response without a length."""

    headers: dict[str, str] = {}  # noqa: RUF012


def test_a_body_without_an_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnel, "MOST_BYTES", 1 << 20)
    body = Body(b"x" * (3 << 20))
    with pytest.raises(errors.Unusable, match="longer than 1 MiB"):
        Tunnel(cast(Any, None), ("127.0.0.1", 1), "cp1", context=None, name="x")._plain("/", cast(http.client.HTTPResponse, body))
    assert body.tell() < 2 << 20
