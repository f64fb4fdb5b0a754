"""What daytwo asks the real binaries of two minors about flags and files, and what it makes of their answers; and the pods that their kubeadm
makes of what daytwo keeps for it. No host."""

from __future__ import annotations

import base64
import os
import re
import subprocess
from pathlib import Path

import pytest

from roles.control_plane_flags.listed_flags import parse_flags
from roles.engine.control_plane import beyond_the_trick
from roles.engine.control_plane.questions import both_questions
from roles.engine.editing import any_flag, cluster_configuration, manifest, manifest_parts
from roles.engine.kubelet import ask
from roles.engine.named_paths import written_path
from roles.engine.starting import FILES
from tests.integration.kubeadm_pods import as_v1beta3, pod_of
from tests.lab import binaries

pytestmark = pytest.mark.binaries

#: Names of flags that sound like a path, and those that name none.
LOOKS = re.compile(
    r"(?i).*(?:-file|cafile|certfile|keyfile|-path|-dir|-kubeconfig|^kubeconfig|-certificate|-client-key|-manifest|-cert-key|filepath.*"
    r"|^config|-config|-endpoint|plugin-dir|encryption-provider-config)$"
)
NO_PATHS = {"runtime-config", "endpoint-reconciler-type", "authorization-always-allow-paths"}


def known(program: str, flag: str) -> bool:
    """Whether one of the tables has the flag."""
    return written_path(program, flag) is not None or any((row.component, row.flag) == (program, flag) for row in FILES)


VERSIONS = (binaries.DEFAULT_VERSION, binaries.OLDER_VERSION)
ISSUER = "--service-account-issuer=https://kubernetes.default.svc.cluster.local"
COMMON = {
    "kube-apiserver": (
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--etcd-servers=https://127.0.0.1:2379",
        "--service-cluster-ip-range=10.96.0.0/12",
        "--service-account-signing-key-file=/etc/kubernetes/pki/sa.key",
        "--tls-cert-file=/none",
        "--tls-private-key-file=/none",
        ISSUER,
    ),
    "kube-controller-manager": ("--kubeconfig=/none", "--leader-elect=true", "--controllers=*,bootstrapsigner"),
    "kube-scheduler": ("--kubeconfig=/none", "--authentication-kubeconfig=/none", "--leader-elect=true"),
}
CONFIG = "/etc/kubernetes/scheduler-config.yaml"
HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nclientConnection: {kubeconfig: /none}\n"
PROFILE = """profiles:
- pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
"""


@pytest.fixture(scope="module", params=VERSIONS)
def folder(request: pytest.FixtureRequest) -> Path:
    version = str(request.param)
    if not binaries.cached(version) and os.environ.get("DAYTWO_LAB") != "1":
        pytest.skip(f"no binaries of {version} in the cache; `make test` gets them")
    return binaries.get(version)


@pytest.fixture(scope="module")
def public_key(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = tmp_path_factory.mktemp("key") / "sa.pub"
    private = subprocess.run(["openssl", "genrsa", "2048"], capture_output=True, check=True).stdout
    made.write_bytes(subprocess.run(["openssl", "rsa", "-pubout"], input=private, capture_output=True, check=True).stdout)
    return f"--service-account-key-file={made}"


def answers(folder: Path, tmp_path: Path, name: str, words: tuple[str, ...], content: str = "") -> tuple[str, str]:
    """What a binary objects to: the form of its flags, its rules."""
    form, rules, contents = both_questions(name, (name, *COMMON[name], *words), {CONFIG: content.encode()} if content else {})
    for number, data in enumerate(contents):
        (tmp_path / str(number)).write_bytes(data)
    rules = [word.replace("/proc/self/fd/3", str(tmp_path)) for word in rules]
    found = []
    for asked in (form, rules):
        done = subprocess.run([folder / name, *asked], capture_output=True, text=True, timeout=60, check=False)
        line = f"answer {name} {done.returncode} {base64.b64encode((done.stdout + done.stderr)[-8000:].encode()).decode()}="
        found.append(ask.verdicts([line])[name])
    return found[0], beyond_the_trick(found[1])


GOOD = [
    ("kube-apiserver", ("--goaway-chance=0.01",), ""),
    ("kube-apiserver", ("--audit-policy-file=/etc/kubernetes/none.yaml", "--audit-log-path=-"), ""),
    ("kube-controller-manager", ("--horizontal-pod-autoscaler-downscale-stabilization=2m",), ""),
    ("kube-scheduler", ("--v=4",), ""),
    ("kube-scheduler", (f"--config={CONFIG}",), HEAD + PROFILE),
]
WRONG_FORM = [
    ("kube-apiserver", ("--no-such-flag=1",), "unknown flag: --no-such-flag"),
    ("kube-controller-manager", ("--horizontal-pod-autoscaler-downscale-stabilization=2x",), 'unknown unit "x" in duration "2x"'),
    ("kube-controller-manager", ("--profiling=maybe",), 'invalid argument "maybe" for "--profiling" flag'),
    ("kube-scheduler", ("--v=x",), 'invalid argument "x" for "-v, --v" flag'),
]
WRONG = [
    ("kube-apiserver", ("--goaway-chance=7",), "", "--goaway-chance can not be less than 0 or greater than 0.02"),
    ("kube-apiserver", ("--disable-admission-plugins=Nope",), "", 'disable-admission-plugins plugin "Nope" is unknown'),
    ("kube-controller-manager", ("--controllers=nope",), "", '"nope" is not in the list of known controllers'),
    ("kube-scheduler", (f"--config={CONFIG}",), HEAD + PROFILE.replace("Most", "Moist"), 'Unsupported value: "MoistAllocated"'),
    ("kube-scheduler", (f"--config={CONFIG}",), HEAD + "percentage: 5\n", 'unknown field "percentage"'),
    ("kube-scheduler", (f"--config={CONFIG}",), HEAD + "percentageOfNodesToScore: 500\n", "not in valid range"),
    ("kube-scheduler", (f"--config={CONFIG}",), HEAD.replace("kind: Kube", "kind: Cube"), 'no kind "CubeSchedulerConfiguration"'),
]


@pytest.mark.parametrize(("name", "words", "content"), GOOD)
def test_what_is_right_is_accepted(folder: Path, tmp_path: Path, public_key: str, name: str, words: tuple[str, ...], content: str) -> None:
    more = (public_key,) if name == "kube-apiserver" else ()
    assert answers(folder, tmp_path, name, (*more, *words), content) == ("", "")


@pytest.mark.parametrize(("name", "words", "said"), WRONG_FORM)
def test_a_wrong_form_is_refused(folder: Path, tmp_path: Path, name: str, words: tuple[str, ...], said: str) -> None:
    assert said in answers(folder, tmp_path, name, words)[0]


@pytest.mark.parametrize(("name", "words", "content", "said"), WRONG)
def test_a_broken_rule_is_refused(
    folder: Path, tmp_path: Path, public_key: str, name: str, words: tuple[str, ...], content: str, said: str
) -> None:
    more = (public_key,) if name == "kube-apiserver" else ()
    form, rules = answers(folder, tmp_path, name, (*more, *words), content)
    assert form == "" and said in rules


@pytest.mark.parametrize("name", COMMON)
def test_every_flag_is_listed_with_its_type(folder: Path, name: str) -> None:
    told = subprocess.run([folder / name, "--help"], capture_output=True, text=True, timeout=60, check=True).stdout
    found = parse_flags("\n".join(line[:200] for line in told.splitlines()))
    assert (
        len(found) > 50
        and found["v"].kind == "Level"
        and found["leader-elect" if name != "kube-apiserver" else "anonymous-auth"].kind == "bool"
    )
    assert found["tls-cipher-suites"].commas and not found["tls-min-version"].several
    if name == "kube-apiserver":
        assert found["service-account-issuer"].several and not found["service-account-issuer"].commas
    # The table of paths knows each flag whose name sounds like one.
    strange = [flag for flag, one in found.items() if one.kind not in ("bool", "int", "int32", "duration") and LOOKS.match(flag)]
    assert [flag for flag in strange if flag not in NO_PATHS and not known(name, flag)] == []


# ---- kubeadm

CLUSTER = """apiServer:
  extraArgs: # of this company
  - name: authorization-mode
    value: Node,RBAC
apiVersion: kubeadm.k8s.io/v1beta4
controllerManager: {}
kind: ClusterConfiguration
kubernetesVersion: v0.0.0
networking: {dnsDomain: cluster.local, serviceSubnet: 10.96.0.0/12}
scheduler: {}
"""
NODE = "\n---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\nlocalAPIEndpoint: {advertiseAddress: 10.0.0.1}\nnodeRegistration: {name: cp1}\n"
FILE = "/etc/kubernetes/daytwo/a.yaml"
KEPT: dict[str, tuple[dict[str, tuple[str, ...] | None], dict[str, bool]]] = {
    "kube-apiserver": (
        {"audit-policy-file": (FILE,), "audit-log-path": ("-",), "event-ttl": ("2h",), "authorization-mode": ("RBAC,Node",), "v": ("4",)},
        {FILE: True},
    ),
    "kube-controller-manager": ({"horizontal-pod-autoscaler-downscale-stabilization": ("2m",), "profiling": ("false",)}, {}),
    "kube-scheduler": ({"config": (CONFIG,), "v": ("2",)}, {CONFIG: True, FILE: True}),
}


def kubeadms(folder: Path, there: Path, text: bytes) -> dict[str, str]:
    """The manifests that kubeadm makes of a configuration of the cluster, by component. It writes them to a directory of the test."""
    own = b"v1beta3" if b"v1beta3" in text else b"v1beta4"
    there.mkdir()
    configuration = there / "kubeadm.yaml"
    configuration.write_bytes(text.replace(b"v0.0.0", folder.name.partition("-")[0].encode()) + NODE.encode().replace(b"v1beta4", own))
    told = subprocess.run(
        [folder / "kubeadm", "init", "phase", "control-plane", "all", "--config", configuration, "--dry-run"],
        env={**os.environ, "KUBEADM_INIT_DRYRUN_DIR": str(there)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    return {name: (there / f"{name}.yaml").read_text() for name in KEPT}


@pytest.mark.parametrize("text", [CLUSTER, as_v1beta3(CLUSTER)], ids=["v1beta4", "v1beta3"])
def test_kubeadm_makes_the_pod_that_daytwo_writes(folder: Path, tmp_path: Path, text: str) -> None:
    """Of what daytwo keeps in the ConfigMap an upgrade makes the manifest that daytwo has written on the nodes."""
    before = kubeadms(folder, tmp_path / "before", text.encode())
    after = text.encode()
    for name, (flags, mounts) in KEPT.items():
        after = cluster_configuration.edit(after, name, flags, mounts)
    made = kubeadms(folder, tmp_path / "after", after)
    for name, (flags, mounts) in KEPT.items():
        ours = manifest_parts.edit(before[name].encode(), name, flags, mounts, "a checksum").decode()
        assert pod_of(made[name]) == pod_of(ours) != pod_of(before[name])


def test_kubeadm_makes_several_values_of_one_flag(folder: Path, tmp_path: Path) -> None:
    """In their order, since the first issuer signs; the older one sorts them, which the plan says (kubeadm#3261)."""
    issuers = ("https://new.example", "https://kubernetes.default.svc.cluster.local")
    after = cluster_configuration.edit(CLUSTER.encode(), "kube-apiserver", {"service-account-issuer": issuers}, {})
    found = manifest.container_argv(kubeadms(folder, tmp_path / "after", after)["kube-apiserver"].encode(), "kube-apiserver")
    assert any_flag.given(found, "service-account-issuer") == (
        issuers if binaries.DEFAULT_VERSION in folder.name else tuple(sorted(issuers))
    )
