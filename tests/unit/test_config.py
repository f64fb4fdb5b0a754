"""config.py: what is compiled of roles/ is kept for the next command, unless the operator forbids it; a run ends without delay."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("forbidden", "kept"), [("", True), ("1", False)])
def test_what_is_compiled_is_kept_as_python_itself_would(forbidden: str, kept: bool, tmp_path: Path) -> None:
    for name in ("roles", "deploys"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "config.py", tmp_path)
    # Refused before anything is looked at: no deploy reads the key.
    done = subprocess.run(
        [Path(sys.executable).with_name("pyinfra"), "@local", "deploys/status.py", "--data", "haproxy_maxconn=5", "-y"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": forbidden, "PYINFRA_PROGRESS": "off"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "haproxy_maxconn is not a key of daytwo's data" in done.stdout + done.stderr
    assert bool(list(tmp_path.glob("roles/**/*.pyc"))) is kept
    assert not list(tmp_path.glob("deploys/**/*.pyc")), "pyinfra compiles these by itself"


def test_the_end_of_a_run_looks_through_nothing() -> None:
    # What is registered first is called last.
    code = """
import atexit, gc
atexit.register(lambda: print(len(gc.get_objects()), gc.get_freeze_count() > 10_000))
exec(open("config.py").read())
"""
    inside = f"from pyinfra import context\nfrom pyinfra.api import Config\nwith context.ctx_config.use(Config()): exec({code!r})"
    done = subprocess.run([sys.executable, "-c", inside], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    left, frozen = done.stdout.split()
    assert int(left) < 1000 and frozen == "True", done.stderr
