"""Changes of a kubelet and of a component."""

from __future__ import annotations

from roles.engine.transaction import Change, FileEdit, RuntimeRestart

EDIT = FileEdit("/etc/default/kubelet", b"A=1\n", b"A=1\nB=2\n")


def change(**other: object) -> Change:
    values: dict[str, object] = {
        "id": "r1-w1-kubelet",
        "node": "w1",
        "component": "kubelet",
        "kind": "kubelet",
        "unit": "kubelet.service",
        "summary": "A=true",
        "files": (EDIT,),
        "health_url": "http://127.0.0.1:10248/healthz",
        "old_argv": ("/usr/bin/kubelet",),
        "new_argv": ("/usr/bin/kubelet", "--feature-gates=A=true"),
        **other,
    }
    return Change(**values)  # type: ignore[arg-type]


KUBELET = change()
STATIC_POD = change(kind="static-pod", component="kube-controller-manager", pod="kube-system_kcm-cp1", container="kube-controller-manager")


# Its steps are run in the lab only: here they would end pods of this machine.
RUNTIME = change(runtime=RuntimeRestart("containerd.service", EDIT.path))
RUNTIME_TOO = change(
    runtime=RuntimeRestart("containerd.service", EDIT.path),
    checkpoints=("/var/lib/kubelet/cpu_manager_state", "/srv/it's/memory_manager_state"),
)
