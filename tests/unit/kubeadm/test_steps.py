"""What would be written to kubelet-config is shown to a kubelet that can be asked."""

from __future__ import annotations

from typing import Any, cast

import pytest

from roles import kubelet
from roles.kubeadm.steps import _refused
from roles.observe import parse
from roles.proof import Node, Survey
from roles.rollout.remote import Answer, Remote, RemoteError
from tests.unit.observe import node

TAKEN = "answer kubelet 1 " + node.b64("error: invalid configuration: maxPods (--max-pods) -1 must not be a negative number,") + "="
REFUSED = "answer kubelet 1 " + node.b64("Error: no such field") + "="
# Of a kubelet that something else starts nothing is asked.
BEHIND_A_SHELL = {"starts": ("/bin/sh", "/usr/bin/dash")}


class _Remote:
    def __init__(self, said: str | Exception) -> None:
        self.said, self.asked = said, 0

    def run(self, command: str, *, stdin: str, timeout: float) -> Answer:
        self.asked += 1
        if isinstance(self.said, Exception):
            raise self.said
        return Answer(0, [self.said], [])


def judged(*nodes: tuple[_Remote, dict[str, Any]]) -> str:
    found = Survey()
    for number, (remote, changes) in enumerate(nodes, 1):
        seen = parse(f"n{number}", node.answer(**changes))
        found.nodes[f"n{number}"] = Node(cast(Remote, remote), seen, kubelet.find(seen), {})
    return _refused(found, node.CONFIG)


@pytest.mark.parametrize("first", [RemoteError("lost"), "unasked kubelet " + node.b64("others can change it") + "="])
def test_a_kubelet_that_cannot_be_asked_leaves_it_to_the_next(first: str | Exception) -> None:
    assert judged((_Remote(first), {}), (_Remote(TAKEN), {})) == ""
    assert "no such field" in judged((_Remote(first), {}), (_Remote(REFUSED), {}))
    assert ("lost" if isinstance(first, Exception) else "others can change it") in judged((_Remote(first), {}))


def test_a_kubelet_behind_something_else_is_not_asked() -> None:
    shell = _Remote(TAKEN)
    assert "ExecStart= starts" in judged((shell, BEHIND_A_SHELL))
    assert judged((shell, BEHIND_A_SHELL), (_Remote(TAKEN), {})) == "" and shell.asked == 0
