"""What docs/scale.md offers for a fleet: an image, a Job, a matrix; and its figures are those of scale.json."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.benchmarks import publish

ROOT = Path(__file__).resolve().parents[3]
FLEET = ROOT / "docs/fleet"
IMAGE = (FLEET / "Containerfile").read_text()
USER = 10001


def read(name: str) -> Any:
    return YAML(typ="safe", pure=True).load((FLEET / name).read_text())


def copied() -> list[str]:
    """What the image has of this repository."""
    return [shlex.split(line)[1] for line in IMAGE.splitlines() if line.startswith("COPY ")]


def test_the_image_has_what_a_run_needs(tmp_path: Path) -> None:
    """From nothing else than that: all of roles/ is imported, a script is rendered, and pyinfra starts with config.py and a deploy."""
    for name in copied():
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, tmp_path / name)
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "records"), "HOME": str(tmp_path), "PYINFRA_PROGRESS": "off"}
    environment.pop("PYTHONPATH", None)
    script = (
        "from pathlib import Path; from importlib import import_module; from roles.engine.inputs import registry; from roles.engine.node import look\n"
        "names = [import_module(f'roles.{path.parent.name}').__name__ for path in Path('roles').glob('*/__init__.py')]\n"
        "import roles; assert len(names) > 5 and roles.__path__[0].startswith(str(Path.cwd())), roles.__path__\n"
        "assert registry.names(); from roles.engine.node.look import rendered; assert 'daytwo observes' in rendered()"
    )
    run = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True, "timeout": 120}
    done = subprocess.run([sys.executable, "-c", script], check=False, **run)
    assert done.returncode == 0, done.stderr
    pyinfra = Path(sys.executable).with_name("pyinfra")
    done = subprocess.run([str(pyinfra), "127.0.0.1", "deploys/status.py", "-y", "--data", "ssh_port=1"], check=False, **run)
    assert done.returncode == 1 and "no host of this run can be connected to" in done.stderr, done.stderr


def test_the_image_has_nothing_else_and_no_secret() -> None:
    assert copied() == ["requirements.txt", "config.py", "deploys", "inventories", "roles", "templates"]
    assert "ADD" not in IMAGE.split() and "ARG" not in IMAGE.split()


def test_the_image_runs_as_a_user_without_rights() -> None:
    last = [line for line in IMAGE.splitlines() if line.startswith("USER ")][-1]
    assert last == f"USER {USER}" and IMAGE.index(last) > IMAGE.rindex("RUN ")
    assert f"--uid {USER}" in IMAGE, "ssh -G wants a user that exists"


def test_the_job() -> None:
    job = read("job.yaml")
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert (job["spec"]["backoffLimit"], pod["restartPolicy"], pod["automountServiceAccountToken"]) == (0, "Never", False)
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] == USER
    assert pod["terminationGracePeriodSeconds"] >= 600 and pod["shareProcessNamespace"], "a SIGTERM arrives, and there is time after it"
    assert "@sha256:" in container["image"]
    rights = container["securityContext"]
    assert rights["readOnlyRootFilesystem"] and not rights["allowPrivilegeEscalation"] and rights["capabilities"] == {"drop": ["ALL"]}
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert mounts.keys() == volumes.keys()
    assert "secret" in volumes["keys"] and "configMap" in volumes["known"] and "persistentVolumeClaim" in volumes["records"]
    assert volumes["keys"]["secret"]["defaultMode"] == 0o440, "readable by the group, and by nobody else"
    assert f"XDG_STATE_HOME={mounts['records']['mountPath']} " in IMAGE, "records go to the volume"
    inventory, deploy, *rest = container["args"]
    assert (ROOT / inventory).exists() and (ROOT / deploy).exists()
    given = dict(word.split("=", 1) for word in rest if "=" in word)
    assert given["ssh_key"].startswith(mounts["keys"]["mountPath"]) and mounts["keys"]["readOnly"]
    assert given["ssh_known_hosts_file"].startswith(mounts["known"]["mountPath"]) and mounts["known"]["readOnly"]
    assert given["ssh_strict_host_key_checking"] == "yes"


def test_the_matrix_has_one_run_for_each_cluster() -> None:
    job = read("ci-matrix.yaml")["jobs"]["cluster"]
    assert "matrix.cluster" in job["concurrency"]["group"] and job["concurrency"]["cancel-in-progress"] is False
    assert job["strategy"]["fail-fast"] is False
    (script,) = [step["run"] for step in job["steps"] if "run" in step]
    assert "${{" not in script, "an input would become a part of the script"
    assert all(re.search(r"@[0-9a-f]{40}$", step["uses"]) for step in job["steps"] if "uses" in step)
    (own,) = [step["env"]["XDG_STATE_HOME"] for step in job["steps"] if "run" in step]
    (kept,) = [step["with"]["path"] for step in job["steps"] if "path" in step.get("with", {})]
    assert "matrix.cluster" in own and kept == f"{own}/daytwo/runs", "an artifact has the records of its own cluster only"
    assert "ssh_strict_host_key_checking=yes" in script and "ssh_known_hosts_file=" in script
    subprocess.run(["sh", "-n"], input=script, text=True, check=True)


@pytest.mark.parametrize("name", ["scale.json", "scale.svg", "scale.md"])
def test_the_figures_of_the_page_are_those_of_scale_json(name: str) -> None:
    kept = json.loads((publish.DOCS / "scale.json").read_text())
    made = publish.files(kept["measures"], kept["results"], (publish.DOCS / "scale.md").read_text())
    assert (publish.DOCS / name).read_text() == made[name], "python -m tests.benchmarks publish FILE..."


def test_each_table_of_the_page_is_filled() -> None:
    page = (publish.DOCS / "scale.md").read_text()
    found = re.findall(r"<!-- table: (\w+) -->\n(.*?)<!-- end -->", page, re.DOTALL)
    assert [name for name, _ in found] == ["compared", "alone", "lines", "plans"]
    assert all(table.count("\n") > 2 for _, table in found)
