"""A command that is started in another folder: pyinfra takes config.py from the folder that it is in, and without it nothing is guarded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.scope.fake_hosts import HOSTS

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("place", ["", "deploys"])
def test_a_command_from_elsewhere_is_refused_with_what_to_do(place: str, tmp_path: Path) -> None:
    (tmp_path / "hosts.py").write_text(HOSTS)
    deploy = "status.py" if place else str(ROOT / "deploys/status.py")
    words = [str(Path(sys.executable).with_name("pyinfra")), str(tmp_path / "hosts.py"), deploy, "-y"]
    environment = {**os.environ, "PYTHONPATH": ""}
    ran = subprocess.run(words, cwd=ROOT / place if place else tmp_path, env=environment, text=True, capture_output=True, check=False)
    said = ran.stdout + ran.stderr
    assert ran.returncode == 1 and f"start it in {ROOT}, or with --chdir {ROOT}" in said, said
    assert "Traceback" not in said and "ModuleNotFoundError" not in said and "its own rules accept and save the key of any new host" in said


# Nothing that pyinfra loads before a deploy file is more certain than these heads: it reads config.py of the current folder only,
# inventories belong to their users, and what an installation adds (a .pth file, an entry point) is missing in any other installation of
# pyinfra, and would bring the code of one checkout to all that share it. For the same reasons nothing of daytwo runs before pyinfra has
# connected; so the refusal says that it has.
def test_each_deploy_is_found_from_elsewhere() -> None:
    heads: dict[str, list[str]] = {}
    for path in sorted((ROOT / "deploys").glob("*.py")):
        text = path.read_text()
        heads.setdefault(text[text.index("import sys\n") : text.index("from roles.")], []).append(path.stem)
    assert len(heads) == 1, heads
