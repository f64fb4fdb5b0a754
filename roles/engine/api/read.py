"""Objects and lists of the API, raw but checked: each is a mapping with metadata. Each function may raise an ApiError."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from functools import partial
from typing import Any
from urllib.parse import urlencode

from roles.engine.api.client import TIMEOUT, Api
from roles.engine.api.errors import Expired, NotFound, Unusable
from roles.engine.kube.fields import meta_of
from roles.engine.kube.workloads import COLLECTIONS, in_namespaces, namespaced

#: As kubectl pages (client-go/tools/pager).
PAGE = 500
#: Of one collection: above what Kubernetes supports (150,000 pods: kubernetes.io/docs/setup/best-practices/cluster-large).
MOST_OBJECTS = 1_000_000
_MOST_PAGES = MOST_OBJECTS // PAGE


def find_object(api: Api, path: str, timeout: float = TIMEOUT, *, wait: float = 0.0) -> dict[str, Any] | None:
    """One object by its path; None if it does not exist."""
    try:
        return api.get_json(path, timeout, wait=wait)
    except NotFound:
        return None


def workload_exists(api: Api) -> Callable[[str, str, str], bool]:
    """Asks for workloads by kind, namespace and name (roles/engine/kube/names.py, whole_name)."""

    def exists(kind: str, namespace: str, name: str) -> bool:
        return find_object(api, f"{namespaced(COLLECTIONS[kind], namespace)}/{name}") is not None

    return exists


def list_objects(
    api: Api,
    path: str,
    namespaces: Collection[str] | None = None,
    *,
    labels: str = "",
    fields: str = "",
    page: int = PAGE,
    timeout: float = TIMEOUT,
    wait: float = 0.0,
) -> list[dict[str, Any]]:
    """All objects of a collection, or those of some namespaces, in pages of `page`; `labels` and `fields` are selectors. All pages show one
    state of the cluster: if the API has forgotten it between two pages (410), the list starts again. Each object is a map with a map
    `metadata`; there are at most MOST_OBJECTS, and no page twice. Raises an ApiError."""
    if namespaces is not None:
        every = partial(list_objects, api, labels=labels, fields=fields, page=page, timeout=timeout, wait=wait)
        return [item for one in in_namespaces(path, namespaces) for item in every(one)]
    query = {key: value for key, value in (("labelSelector", labels), ("fieldSelector", fields)) if value}
    items: list[dict[str, Any]] = []
    after = ""
    asked: set[str] = set()
    while len(asked) <= _MOST_PAGES and len(items) <= MOST_OBJECTS:
        whole = f"{path}?{urlencode({**query, 'limit': str(page), **({'continue': after} if after else {})})}"
        try:
            found = api.get_json(whole, timeout, wait=wait)
            items += objects(found["items"] or [])
            after = str(meta_of(found).get("continue") or "")
        except Expired:
            if not after:
                raise
            items, after, page = [], "", 0  # 0 is no limit: the second time all at once
            continue
        except (KeyError, TypeError, AttributeError) as error:
            raise odd(api, whole, error) from error
        if not after:
            return items
        if after in asked:
            break
        asked.add(after)
    raise Unusable(
        api.host, path, f"the list does not end: {len(items)} objects on {len(asked) + 1} pages, and more to come",
        "look at what serves it: kubectl get apiservices; if there are so many, delete those that nobody needs",
    )  # fmt: skip


def objects(found: Any) -> list[dict[str, Any]]:
    """Raises TypeError."""
    if not isinstance(found, list) or not all(isinstance(one, dict) and isinstance(one.get("metadata"), dict) for one in found):
        raise TypeError("the items are no list of objects with metadata")
    return found


def odd(api: Api, path: str, error: Exception) -> Unusable:
    return Unusable(
        api.host, path, f"the answer lacks a field or has an invalid one ({type(error).__name__}: {error})",
        f"check it by hand: kubectl get --raw {json.dumps(path)}",
    )  # fmt: skip
