"""What scripts on nodes leave behind."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from roles.engine.scripts import filled

TEMPLATES = Path(__file__).parents[2] / "templates"


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_a_folder_goes_where_nobody_hears_the_script_any_more(tmp_path: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = (
        f"d=$(mktemp -d {tmp_path}/ask.XXXXXX)\n{filled('removed_at_end.sh.j2')}IFS= read -r _\nprintf 'daytwo 1\\n'\nprintf 'more\\n'\n"
    )
    process = subprocess.Popen([shell, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None and process.stdin is not None
    process.stdout.close()
    process.stdin.write(b"go\n")
    process.stdin.close()
    process.wait(timeout=60)
    assert list(tmp_path.iterdir()) == []


def test_each_script_with_a_folder_of_its_own_removes_it_so() -> None:
    having = {path.name: path.read_text() for path in TEMPLATES.glob("*.j2") if "mktemp -d" in path.read_text()}
    assert having and [name for name, text in having.items() if '{% include "removed_at_end.sh.j2" %}' not in text] == []
