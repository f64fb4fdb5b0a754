"""Settings in two places that must fit each other: a table, and what judges it."""

from roles.engine.pairs.judge import changed, concerned, mismatches, read_again, sentence, text
from roles.engine.pairs.model import Mismatch, Pair
from roles.engine.pairs.picture import (
    KUBELET,
    Handshake,
    KubeletSide,
    Picture,
    Server,
    etcd,
    files_of,
    kubeconfigs_of,
    kubelet_side,
    server,
)
from roles.engine.pairs.relations import unsigned
from roles.engine.pairs.table import PAIRS, is_way

#: The fields of kubelets that a pair reads.
FIELDS = tuple(dict.fromkeys(name for pair in PAIRS for side in (pair.here, pair.there) if side.owner == KUBELET for name in side.names))

__all__ = [
    "FIELDS",
    "PAIRS",
    "Handshake",
    "KubeletSide",
    "Mismatch",
    "Pair",
    "Picture",
    "Server",
    "changed",
    "concerned",
    "etcd",
    "files_of",
    "is_way",
    "kubeconfigs_of",
    "kubelet_side",
    "mismatches",
    "read_again",
    "sentence",
    "server",
    "text",
    "unsigned",
]
