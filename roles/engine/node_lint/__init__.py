"""What is wrong on a node, whatever the inventory wants: processes that differ from their files, files that are in a wrong directory. One
judgement, for checks and the audit; what keeps a process from its next start is in `starting`."""

from roles.engine.node_lint.files import looks_like_a_backup
from roles.engine.node_lint.judge import lint
from roles.engine.node_lint.rules import NodeRule

__all__ = ["NodeRule", "lint", "looks_like_a_backup"]
