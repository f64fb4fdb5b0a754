"""The transaction every role ends in: stage, apply, prove, confirm or revert."""

from roles.change.bundle import Holder, directory, keep_script, render, script, stage_script, uninstall_script
from roles.change.model import Change, FileEdit
from roles.change.report import Status

__all__ = ["Change", "FileEdit", "Holder", "Status", "directory", "keep_script", "render", "script", "stage_script", "uninstall_script"]
