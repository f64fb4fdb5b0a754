"""What must be read of a machine before it goes off, since nobody can read it afterwards; and of the API."""

from __future__ import annotations

from roles.engine.api import Api
from roles.engine.kubelet import Kubelet, certificate_files
from roles.engine.node import minor_of
from roles.engine.node.named_files import read_trust
from roles.engine.remote import Shell
from roles.sleeping.dates import Ends


def read_ends(remote: Shell, kubelet: Kubelet) -> Ends:
    """Of a node that is on. A bundle of CAs ends with the last one. Raises RemoteError."""
    current, kubeconfig = certificate_files.client(kubelet)
    files, trusted = read_trust(remote, [current, *([kubeconfig] if kubeconfig else [])], [kubeconfig] if kubeconfig else [])
    # As the kubelet does: one that renews uses its own file, another one its kubeconfig.
    paths = [current, kubeconfig] if kubelet.configuration.get("rotateCertificates") else [kubeconfig, current]
    own = next((files[path].certificates[0] for path in paths if path in files and files[path].certificates), None)
    authority = max((one.not_after for file in trusted.values() for one in file.certificates), default=None)
    return Ends(own.not_before if own else None, own.not_after if own else None, authority)


def newest_minor(api: Api) -> int | None:
    """The minor of the API server that answers, for the version skew of machines that are off; None if it says none. Raises ApiFailure."""
    return minor_of(str(api.get_json("/version").get("gitVersion") or ""))
