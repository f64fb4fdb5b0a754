"""HTTP and TLS through SSH connections: the API of a control-plane node, etcd, and what a server presents. No listener, no kubeconfig
and no key on the operator's disk."""

from roles.engine.tunnels import etcd, served
from roles.engine.tunnels.tunnel import Peer, Tunnel, TunnelApi

__all__ = ["Peer", "Tunnel", "TunnelApi", "etcd", "served"]
