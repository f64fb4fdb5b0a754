"""The transaction every role ends in: stage, apply, prove, confirm or revert."""

from roles.change.bundle import Holder, directory, render, script, stage_script
from roles.change.model import Change, FileEdit
from roles.change.report import Status

__all__ = ["Change", "FileEdit", "Holder", "Status", "directory", "render", "script", "stage_script"]
