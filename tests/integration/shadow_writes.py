"""Writes of autoscalers through daytwo's own client on the API of a shadow, their proof and their undo."""

from __future__ import annotations

import json
import urllib.error
from typing import Any

from roles.autoscalers import KINDS as AUTOSCALERS
from roles.autoscalers import AutoscalerWriter, with_result
from roles.engine.api import Api, errors
from roles.engine.autoscaling import ScalingController
from roles.engine.autoscaling.controller import leader, read_lease
from roles.engine.objects import ObjectChange, Session, undo_plan
from roles.engine.transaction import ChangedField, ChangedObject, ObjectsRecord
from tests.context import context
from tests.integration.shadow import Shadow

SYNC = 1


class ShadowApi(Api):
    """daytwo's own client on the shadow's API: what leaves it is what leaves it over SSH."""

    def __init__(self, api: Shadow) -> None:
        super().__init__("shadow")
        self._api = api

    def _get(self, path: str, timeout: float) -> bytes:
        return self._send("GET", path, "application/json", b"", timeout)

    def _send(self, verb: str, path: str, content: str, body: bytes, timeout: float) -> bytes:
        try:
            return json.dumps(self._api.ask(verb, path, json.loads(body) if body else None, content)).encode()
        except urllib.error.HTTPError as error:
            raise errors.by_status(self.host, path, error.code, error.read()) from None


def writer_of(session: Session, seconds: float = 60) -> AutoscalerWriter:
    lease = read_lease(session.asked(lambda api: api))
    controller = ScalingController(36, downscale_stabilization=4, sync_period=SYNC, leads_since=leader(lease)[1])
    return AutoscalerWriter(session, controller, force=False, proof_seconds=seconds)


def carried_out(session: Session, action: ObjectChange, *, seconds: float = 60) -> tuple[str, ObjectsRecord]:
    """The proof of one action, and its record."""
    (step,) = writer_of(session, seconds).steps([action])
    fields: list[Any] = []
    proof = step.write(context(fields.extend))
    kept = tuple(ChangedField(tuple(one["path"]), one["before"], one["after"]) for one in fields)
    # A created object has its UID only now.
    one = ChangedObject(step.name, step.action, kept, step.about, "done")
    return proof, ObjectsRecord("r", "", "autoscalers", {}, (one,))


def undone(session: Session, record: ObjectsRecord) -> str:
    there = {one.path: item for one in record.objects if (item := session.fetch(one.path)) is not None}
    plan = undo_plan(record, AUTOSCALERS.values(), there, force=False)
    assert not plan.refusals, plan.refusals
    (back,) = plan.actions
    if back.manifest is not None:
        manifest = back.manifest
        made = with_result(back, session.asked(lambda api: api.apply(back.path, manifest, dry_run=True)), plan)
        assert made is not None, plan
        back = made
    return carried_out(session, back)[0]
