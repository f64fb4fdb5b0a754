"""Secrets are hidden, and nothing else is: what is masked, what is kept, and what must never be seen."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import string
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from roles.engine.editing import FormatError, envfile, yaml_text
from roles.engine.transaction import FileEdit, mask_manifest, mask_text
from roles.engine.transaction.mask import MASKED, mask_command
from roles.engine.transaction.mask_files import mask_env_file, mask_unit, masker

MASKERS = (mask_text, mask_env_file, mask_unit, mask_manifest)
each_masker = pytest.mark.parametrize("mask", MASKERS, ids=lambda mask: mask.__name__)


def hidden(value: str) -> str:
    return f"<masked sha256:{hashlib.sha256(value.encode()).hexdigest()[:8]}>"


JWT = "eyJhbGciOiJSUzI1NiIsImtpZCI6IkFCIn0.eyJpc3MiOiJrdWJlIn0.c2lnbmF0dXJl-_x"
BOOTSTRAP = "abcdef.0123456789abcdef"
KEY_LINES = "MIIEowIBAAKCAQEAabcdefghijklmnop\nabcdefghijklmnopqrstuvwxyz012345\nshort="
PEM_KEY = f"-----BEGIN RSA PRIVATE KEY-----\n{KEY_LINES}\n-----END RSA PRIVATE KEY-----\n"
PEM_CERTIFICATE = PEM_KEY.replace("RSA PRIVATE KEY", "CERTIFICATE")
PEM64_KEY, PEM64_CERTIFICATE = (base64.b64encode(pem.encode()).decode() for pem in (PEM_KEY, PEM_CERTIFICATE))

# `«...»` is what must be masked, the rest must stay.
TEXTS = [
    # assignments and flags
    "TOKEN=«abc» other=1",
    "export DB_PASS=«abc»",
    "AWS_SECRET_ACCESS_KEY=«a/b+c» aws",
    "password = «a b c»",
    "--token=«abc» --v=2",
    "--token «abc» --v=2",
    "--apiKey=«abc»,",
    "--token='«a b»' --v=2",
    'ExecStart=/usr/bin/x --password "«a b»" --v=2',
    "login password=«'it'\\''s'» x",
    'msg="no" err="login \\"password=«abc»\\" failed"',
    'msg="no" err="login password=\\"«abc»\\" failed"',
    "https://h/x?token=«abc»&user=b",
    "kubeadm join 1.2.3.4:6443 --token «abc» --discovery-token-ca-cert-hash sha256:0a1b --certificate-key «0a1b»",
    'A="--v=2 --token=«abc» --node-ip=1.2.3.4"',
    'A="--token=«abc» --node-ip=1.2.3.4"',
    # maps
    "password: «a b c» # why",
    'password: "«a b # c»" # why',
    "password: '«it''s»'",
    '{"password":"«abc»","user":"x"}',
    '{"a":1,"password": «123»,"user":"x"}',
    '"secretKey": "«a\\"b»",',
    "user: {name: a, token: «b c», x: y}",
    "# token: «abc»",
    "+  token: «abc»",
    "{Token:«abc» Password:«def» User:x}",
    "map[password:«abc» user:x]",
    "token: |\n  «abc\n  def»\nnext: 1",
    "token:\n  «abc»\nnext: 1",
    'token: "«abc\n  def"»\nnext: 1',
    "token: «abc\n  def»\nnext: 1",
    "tokens:\n- «abc»\nnext: 1",
    'Authorization: [«"Basic abc", "x"»]',
    "client-key-data: «abc»",
    # headers
    "Authorization: Bearer «xyz»",
    "authorization: Basic «dXNlcjpwYXNz»",
    "curl -H 'Authorization: Bearer «xyz»' https://h",
    'curl -H \\"X-Auth-Token: «xyz»\\" https://h',
    "sent Bearer «abc.123-x» to h",
    # lists of arguments
    "    - --token=«a b»",
    '    - "--token=«a b»"',
    '["kubelet", "--token", "«abc»", "--v=2"]',
    "[kubelet, --token, «abc», --v=2]",
    "  - --token\n  - «abc»\n  - --v=2",
    '  "--token",\n  "«abc»",\n  "--v=2"',
    # by their looks
    f"got «{JWT}» from x",
    f"got «{BOOTSTRAP}».",
    f"-«{BOOTSTRAP}»",
    "proxy https://user:«p@ss»@host:3128/x?y#z",
    f"«{PEM64_KEY}»",
    f"{PEM_CERTIFICATE}x {PEM_KEY.replace(KEY_LINES, f'«{KEY_LINES}»')}",
    f"-----BEGIN PRIVATE KEY-----\n«{KEY_LINES}»\nWhat is this?",
    f"-----BEGIN PRIVATE KEY-----\\n«{KEY_LINES}»\\n-----END PRIVATE KEY-----".replace("\n", "\\n"),
]
PLAIN = [
    "",
    "--client-ca-file=/a --tls-private-key-file=/a/key --token-auth-file=/t --service-account-key-file=/k --tokenfile=/t",
    "--token-auth-file /t --password-path /p --credential-dir /d",
    "--anonymous-auth=false --enable-bootstrap-token-auth=true --use-service-account-credentials",
    "--authentication-token-webhook-cache-ttl=2m0s --authorization-mode=Node,RBAC --concurrent-serviceaccount-token-syncs=5",
    'FLAG: --anonymous-auth="true"',
    "--feature-gates=CSIServiceAccountTokenSecrets=true,B=false --v=2",
    "CSIServiceAccountTokenSecrets=true|false (BETA)",
    "tokenTTL: 24h0m0s",
    "secretKeyRef: {name: x, key: token}",
    "secretRef:\n  name: x",
    "secret:\n  secretName: x\n  defaultMode: 420",
    "imagePullSecrets:\n- name: x",
    "automountServiceAccountToken: false",
    "token: null\ntoken:\ntoken: ''",
    "authorization:\n  mode: Webhook\n  webhook:\n    cacheAuthorizedTTL: 0s",
    "configMapAndSecretChangeDetectionStrategy: Watch",
    'user="system:serviceaccount:secrets:default" verb=get',
    "ghcr.io/x/oauth2-proxy-auth:v7.1",
    "open /var/run/secrets/kubernetes.io/serviceaccount/token: no such file or directory",
    "failed to list *v1.Secret: secrets is forbidden",
    'MountVolume.SetUp failed for volume "v" : secret "s" not found',
    "I1121 token-cleaner: started",
    "the bearer token of this request; bearer authentication",
    "401 (anonymous-auth=false).",
    "took 123456.1234567890123456",
    "https://user@host https://host:6443/x@y",
    "LoadCredential=x:/y",
    "PWD=/root; 3 passed, pass=3",
    f"certificate-authority-data: {PEM64_CERTIFICATE}",
    PEM_CERTIFICATE,
]


def split(marked: str) -> tuple[str, str]:
    """The text without its marks, and as it should be masked."""
    parts = marked.replace("»", "«").split("«")
    return "".join(parts), "".join(hidden(part) if number % 2 else part for number, part in enumerate(parts))


@pytest.mark.parametrize("marked", TEXTS)
def test_text(marked: str) -> None:
    text, expected = split(marked)
    assert mask_text(text) == expected


@pytest.mark.parametrize("text", PLAIN)
def test_what_is_no_secret_stays(text: str) -> None:
    assert mask_text(text) == text


@pytest.mark.parametrize(
    "marked",
    [
        "A=«b»",
        'A="«b c»"\nB=\nC=""\nD=\'\'\n',
        "A='«b»'\r\nB=«c»\r\n",
        "A=«it's»\nB=«x y»  \n",
        'A="«x\ny»"\nB=«z»',
        "A=«b \\\n c»\nD=«true»",
        'A=«"never closed\nB=x»',
        "#A=«b»\n; export A=«b»",
        "# see A=b at https://h",
        "+A=«b»\n-AB=«c»\n AB=«d»\n",
        'KUBELET_EXTRA_ARGS="--v=2 --token=«abc» --node-ip=1.2.3.4"',
        'KUBELET_EXTRA_ARGS="--token=«abc» --v=2" # x',
        "KUBELET_EXTRA_ARGS=-v 2 --node-labels=a=b,c=d",
        "A=«-Zq81x»\nPASSWORD=«--abc»",
        f'A="«{PEM_KEY}»"\nB=«c»\n'.replace(f"{PEM_KEY}»", f"{PEM_KEY.rstrip()}»"),
        PEM_KEY.replace(KEY_LINES, f"«{KEY_LINES}»"),
        "    client-key-data: «LS0tLQ==»",
    ],
)
def test_environment_file(marked: str) -> None:
    text, expected = split(marked)
    assert mask_env_file(text) == expected


@pytest.mark.parametrize(
    "marked",
    [
        "Environment=\"A=«b c»\" D=«e» 'F=«g»'\nExecStart=/x --token=«abc» --v=2\n",
        "[Service]\nEnvironment=A=«b» \\\n  C=«d»\nRestart=always\n",
        'Environment=A="«b c»" B=\nEnvironment=',
        "Environment=A=«b» «c»",
        'Environment="A=«b',
        "#Environment=A=«b»\n+Environment=A=«b»",
        'Environment="KUBELET_EXTRA_ARGS=--v=2 --token=«x»" KUBELET_CONFIG_ARGS=--config=/x --v=2',
        "DefaultEnvironment=A=«b»",
        "EnvironmentFile=-/etc/x\nPassEnvironment=A B\nUnsetEnvironment=A\nLoadCredential=x:/y\nSetCredential=«a:b»",
        "ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_EXTRA_ARGS",
    ],
)
def test_unit(marked: str) -> None:
    text, expected = split(marked)
    assert mask_unit(text) == expected


@pytest.mark.parametrize(
    "marked",
    [
        "    value: «y»",
        "+    value: «y»",
        "-    value: «true»",
        "    # value: «y»",
        "- name: A\n  value: «b c» # d",
        "- value: «b»\n  name: A",
        "value: ''\nvalue: \"\"\nvalue:\nvalueFrom: x",
        "- name: A\n  value: |-\n    «b\n\n    c»\n- name: B",
        "- name: A\n  value: «b\n    c»\n- name: B",
        '- name: A\n  value: "«b\n    c»"\n- name: B',
        "- name: A\n  value:\n    «b»\n- name: B",
        'value:\n"foo": bar',
        "- {name: A, value:\n    «b»}",
        "- {name: A,\n   x: y, value: «b\n   c», z: 1}",
        'env: [{name: X, value: «y z»}, {name: Z, value: "«q, w»"}]',
        '      «"value": "y",»',
        '{"env":[{"name":"A","value":"«b»"}],"tolerations":[{"key":"a","value":"b"}]}',
        '{"tolerations": [\n {\n  "key": "a",\n  "value": "b"\n }\n],\n"env": [\n {\n  "name": "A",\n  "value": "«b»"\n }\n]}',
        "tolerations:\n- key: a\n  value: b\nenv:\n- name: x\n  value: «c»\n",
        "registerWithTaints:\n  - effect: NoSchedule\n    key: a\n    value: b\n",
        "securityContext:\n  sysctls:\n  - name: a\n    value: b\ndnsConfig:\n  options:\n  - value: '2'\n    name: ndots",
        # No YAML: each line is masked whole.
        "«tolerations:»\n«- key: a»\n«@@ -7 +7 @@»\n  «value: b»",
        # A text that is YAML or JSON itself.
        """annotations: {x: '{"env":[{"name":"A","value":"«b»"}],"image":"c"}'}""",
        'annotations: {x: "«{\\"env\\":[{\\"name\\":\\"A\\",\\"value\\":\\"b\\"}]}»"}',
        "data:\n  x: |\n    env:\n    - name: A\n      value: «b»\n  y: z",
        "# env: [{name: A, value: «b»}]",
        "a: &x «b»\nvalue: *x",
        "a: 1\n---\n- value: !!str «b»\n",
        # kubeadm's arguments.
        'extraArgs:\n- name: v\n  value: "4"\n- name: some-token\n  value: «y»',
        "env:\n- name: A\n  valueFrom:\n    secretKeyRef:\n      name: x\n      key: token",
        "args:\n- --token=«a b»\n- --value=b\n- --foo=value:b",
    ],
)
def test_manifest(marked: str) -> None:
    text, expected = split(marked)
    assert mask_manifest(text) == expected


def indented(text: str, by: str) -> str:
    return "".join(f"{by}{line}\n" for line in text.split("\n"))


# Where a text may stand in a file, and what masks that file.
HOLDERS: dict[str, tuple[Callable[[str], str], Callable[[str], str]]] = {
    "log": (mask_text, lambda text: f"I1121 started\n{text}\nE1121 ended\n"),
    "annotation": (mask_manifest, lambda text: dumped({"metadata": {"annotations": {"note": text}, "name": "x"}}, False, 10_000)),
    "flow": (mask_manifest, lambda text: dumped({"metadata": {"annotations": {"note": text}, "name": "x"}}, True, 10_000)),
    "argument": (mask_manifest, lambda text: dumped({"args": ["x", text, "y"]}, False, 10_000)),
    "json": (mask_manifest, lambda text: json.dumps({"args": ["x", text], "x": {"note": text}}, indent=1)),
    "json in json": (mask_manifest, lambda text: json.dumps({"x": json.dumps({"note": text})})),
    "block": (mask_manifest, lambda text: "data:\n  x: |2\n" + indented(text, "    ") + "  y: z\n"),
    "no YAML": (mask_manifest, lambda text: "x: |2\n" + indented(text, "    ") + "@\n"),
    "variable": (mask_env_file, lambda text: 'A="' + text.replace("\\", "\\\\").replace('"', '\\"') + '"\n'),
    "lines of a file": (mask_env_file, lambda text: f"{text}\n"),
    "unit": (mask_unit, lambda text: f"[Service]\n{text}\n[Install]\n"),
}


def rest(marked: str) -> str:
    """The text without its secrets."""
    return "".join(marked.replace("»", "«").split("«")[::2])


def seen(marked: str, shown: str, kept: str) -> list[str]:
    """Lines of secrets that are shown, more often than they are in `kept`, the rest of the text."""
    shown = MASKED.sub("", shown)
    lines = [line.strip() for secret in marked.replace("»", "«").split("«")[1::2] for line in secret.split("\n")]
    return [line for line in lines if len(line) > 2 and shown.count(line) > kept.count(line)]


@pytest.mark.parametrize("holder", HOLDERS)
def test_what_is_masked_in_a_text_is_masked_in_every_file(holder: str) -> None:
    mask, hold = HOLDERS[holder]
    shown = {marked: seen(marked, mask(hold(split(marked)[0])), hold(rest(marked))) for marked in TEXTS}
    assert {marked: lines for marked, lines in shown.items() if lines} == {}  # a holder may have the text twice


@pytest.mark.parametrize("mark", ["# ", "#", "; "])
@pytest.mark.parametrize("marked", [marked for marked in TEXTS if "\n" not in marked])
@each_masker
def test_comments_are_masked_too(mask: Callable[[str], str], marked: str, mark: str) -> None:
    assert seen(marked, mask(f"{mark}{split(marked)[0]}\n"), rest(marked)) == []


def test_command() -> None:
    secret, plain = hidden("x y"), ["pyinfra", "inv.py", "--data", "feature_gates=A=true", "--use-sudo-password", "deploy.py", "-y"]
    assert mask_command(plain) == plain
    assert mask_command(["--data", "_sudo_password=x y", "--data=ssh_password=x y"]) == [
        "--data",
        f"_sudo_password={secret}",
        f"--data=ssh_password={secret}",
    ]
    assert mask_command(["--ssh-password", "x y", "-y"]) == ["--ssh-password", secret, "-y"]
    assert mask_command(["--ssh-password", "-Zq"]) == ["--ssh-password", hidden("-Zq")]
    assert mask_command(["--ssh-password", "--yes", "--data", "_use_sudo_password=True"])[1:] == [
        "--yes",
        "--data",
        "_use_sudo_password=True",
    ]
    assert mask_command(['users={"password":"x y"}', "--ssh-key", "/root/key"]) == [
        f'users={{"password":"{secret}"}}',
        "--ssh-key",
        "/root/key",
    ]


@pytest.mark.parametrize(
    ("path", "mask"),
    [
        ("/etc/systemd/system/kubelet.service.d/10-kubeadm.conf", mask_unit),
        ("/usr/lib/systemd/system/kubelet.service", mask_unit),
        ("/etc/systemd/kubelet.env", mask_env_file),
        ("/etc/kubernetes/manifests/kube-apiserver.yaml", mask_manifest),
        ("/etc/kubernetes/manifests/kube-apiserver", mask_manifest),
        ("/var/lib/kubelet/config.yaml", mask_manifest),
        ("/x/pod.json", mask_manifest),
        ("/etc/default/kubelet", mask_env_file),
        ("/etc/sysconfig/kubelet", mask_env_file),
        ("/var/lib/kubelet/kubeadm-flags.env", mask_env_file),
    ],
)
def test_the_path_tells_how(path: str, mask: Callable[[str], str]) -> None:
    assert masker(path) is mask


# Texts out of pieces that meet in odd ways.
PIECES = [
    *(
        "token", "password", "secret", "auth", "Authorization", "--token", "--password", "value", "env", "tolerations", "name",
        "Environment", "A",
    ),
    *(
        "=", ":", ": ", " ", "\n", "\n  ", "\n- ", "- ", ", ", ",", '"', "'", '\\"', "\\", "{", "}", "[", "]", "#", "+", "-", "--", "|",
        "&", "?", "@",
    ),
    *("Bearer ", "Basic ", "://", "https://u:", "@h", "/", ".", "true", "x", "hunter2", "a b", "\udcff", "\ud800", "é", "\r", "\x1b", "\t"),
    *(JWT, BOOTSTRAP, PEM64_KEY, PEM_KEY, "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", KEY_LINES),
    *(hidden("x"), "<masked sha256:", "0123abcd>"),
]  # fmt: skip
odd_texts = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=25).map("".join)


@each_masker
@given(odd_texts)
@example("token: -<masked sha256:0123abcd>x")
@example("token='a'b<masked sha256:0123abcd>")
@example("LS0tLS1CRUdJTiABC=====")
def test_what_is_masked_stays_as_it_is(mask: Callable[[str], str], text: str) -> None:
    masked = mask(text)
    assert mask(masked) == masked


@given(st.lists(st.sampled_from(PIECES), max_size=8))
def test_a_masked_command_stays_as_it_is(argv: list[str]) -> None:
    masked = mask_command(argv)
    assert len(masked) == len(argv)
    assert mask_command(masked) == masked


# Every secret has this in it, and no name has, so that none may be seen in what is masked.
TELL = "Zq"
names = st.text("ABCDEFGHIJKLMNOP_", min_size=2, max_size=9).filter(lambda name: not name.startswith("_"))


def secrets(characters: str, first: str = "Zabc019") -> st.SearchStrategy[str]:
    return st.builds(
        lambda head, before, behind: f"{head}{before}{TELL}{behind}",
        st.sampled_from(first),
        st.text(characters, max_size=12),
        st.text(characters, max_size=12),
    )


PRINTABLE = string.printable.replace("\r", "").replace("\x0b", "").replace("\x0c", "") + "éß漢"
env_values = st.one_of(
    secrets(PRINTABLE.replace("\n", "").replace("\\", "")),
    secrets(PRINTABLE.replace("'", "")).map(lambda value: f"'{value}'"),
    secrets(PRINTABLE).map(lambda value: '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'),
    secrets(PRINTABLE.replace("\n", "").replace("\\", "")).map(lambda value: value.replace(" ", " \\\n ")),
)
env_lines = st.one_of(
    st.builds("{}{}={}".format, st.sampled_from([" ", "#", "# ", "; export "]), names, env_values.filter(lambda value: "\n" not in value)),
    st.builds("{}={}{}".format, names, env_values, st.sampled_from(["", " ", "\r"])),
    st.sampled_from(["", "# a word", 'KUBELET_EXTRA_ARGS="--v=2 --node-ip=1.2.3.4"', "EMPTY=", 'KUBELET_EXTRA_ARGS="--token=Zq1" ']),
)


@given(st.lists(env_lines, min_size=1))
def test_no_value_of_an_environment_file_is_seen(lines: list[str]) -> None:
    text = "\n".join(lines) + "\n"
    masked = mask_env_file(text)
    assert TELL not in masked
    assert [found.name for found in envfile.parse(masked.encode()).assignments] == [
        found.name for found in envfile.parse(text.encode()).assignments
    ]


quoted_words = st.builds(
    lambda name, value, quote: f"{quote}{name}={value.replace(chr(92), chr(92) * 2).replace(quote, chr(92) + quote)}{quote}",
    names,
    secrets(PRINTABLE.replace("\n", "")),
    st.sampled_from("\"'"),
)
unit_words = quoted_words | st.builds("{}={}".format, names, secrets(string.ascii_letters + string.digits + "/+=.,:;$%#{}[]"))


@given(st.lists(st.lists(unit_words, min_size=1), min_size=1), st.sampled_from([" ", " \\\n", " \\\n    ", "  "]))
def test_no_environment_of_a_unit_is_seen(lines: list[list[str]], between: str) -> None:
    text = "[Service]\n" + "".join(f"Environment={between.join(words)}\n" for words in lines) + "ExecStart=/usr/bin/kubelet --v=2\n"
    masked = mask_unit(text)
    assert TELL not in masked
    assert masked.startswith("[Service]\n") and masked.endswith("\nExecStart=/usr/bin/kubelet --v=2\n")


def dumped(content: object, flow: bool | None, width: int) -> str:
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style, yaml.width, yaml.allow_unicode = flow, width, True
    stream = io.StringIO()
    yaml.dump(content, stream)
    return stream.getvalue()


def literal(values: list[tuple[str, str]]) -> str:
    items = [
        f"    - name: {name}\n      value: |2\n" + "".join(f"        {line}\n" for line in value.split("\n")) for name, value in values
    ]
    return "    env:\n" + "".join(items) + "    image: x\n"


styles = st.sampled_from(
    [
        *(lambda content, flow=flow, width=width: dumped(content, flow, width) for flow in (False, None) for width in (20, 80, 10_000)),
        *(lambda content, width=width: dumped(content, True, width) for width in (20, 80, 10_000)),
        json.dumps,
        lambda content: json.dumps(content, indent=2),
    ]
)


def is_yaml(text: str) -> bool:
    """ruamel does not read all that it writes: `{a: ?x}`."""
    try:
        return bool(yaml_text.tops(text))
    except FormatError:
        return False


variables = st.lists(st.tuples(names, secrets(PRINTABLE, first="Zabc019 \"'{[#|>&*!%@-?:,")), min_size=1)


@given(variables, styles)
def test_no_environment_of_a_pod_is_seen(values: list[tuple[str, str]], style: Callable[[object], str]) -> None:
    env = [{"name": name, "value": value} for name, value in values]
    first, last = ([{"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"}] for _ in range(2))
    container = {"command": ["kube-apiserver", "--v=2"], "env": env, "image": "x", "name": "x"}
    text = style({"extra": {"tolerations": first}, "kind": "Pod", "spec": {"containers": [container], "tolerations": last}})
    masked = mask_manifest(text)
    assert TELL not in masked
    assert "--v=2" in masked or not is_yaml(text)


@given(variables)
def test_no_line_of_a_block_is_seen(values: list[tuple[str, str]]) -> None:
    masked = mask_manifest(literal(values))
    assert TELL not in masked and masked.endswith("\n    image: x\n")


FORMS = [
    *(
        "--token={}", "x --password={} --v=2", "x --password '{}' --v=2", 'x --password "{}" --v=2', "password: {}", 'password: "{}"',
        "api_key = {}",
    ),
    *(
        '{{"clientSecret":"{}","x":1}}',
        "Authorization: Bearer {}",
        "curl -H 'Authorization: Basic {}' h",
        "https://u:{}@h/",
        'err="token=\\"{}\\" is bad"',
    ),
    *("    - --token={}", "    - --token\n    - {}\n", '["--token", "{}"]'),
]  # fmt: skip


@given(st.sampled_from(FORMS), secrets(string.ascii_letters + string.digits + "+=.,:;!$%^*()_~@|-", first="Zabc019"))
def test_no_named_secret_is_seen(form: str, value: str) -> None:
    text = form.format(value)
    masked = mask_text(text)
    before, behind = form.format(TELL).split(TELL)
    assert TELL not in masked
    assert masked.startswith(before + "<masked sha256:") and masked.endswith(behind)


@given(st.text(min_size=1, max_size=8), st.text(min_size=1, max_size=8))
def test_two_secrets_look_different(one: str, other: str) -> None:
    masked = [mask_command([f"--data=token={value}"]) for value in (one, other)]
    assert (masked[0] == masked[1]) == (one == other)


gates = st.lists(
    st.tuples(
        st.sampled_from(
            ["KubeletEnsureSecretPulledImages", "ServiceAccountTokenJTI", "CSIServiceAccountTokenSecrets", "A", "MinimumKubeletVersion"]
        ),
        st.booleans(),
    ),
    min_size=1,
).map(lambda pairs: "--feature-gates=" + ",".join(f"{name}={str(value).lower()}" for name, value in pairs))
thresholds = st.lists(
    st.tuples(st.sampled_from(["memory.available", "nodefs.available", "imagefs.inodesFree"]), st.sampled_from("<="), st.integers(1, 99)),
    min_size=1,
).map(lambda found: "--eviction-hard=" + ",".join(f"{signal}{sign}{size}%" for signal, sign, size in found))
usual = st.sampled_from(
    [
        "--anonymous-auth=false",
        "--authentication-token-webhook",
        "--authentication-token-webhook-cache-ttl=2m0s",
        "--authorization-mode=Webhook",
        "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf",
        "--client-ca-file=/etc/kubernetes/pki/ca.crt",
        "--config=/var/lib/kubelet/config.yaml",
        "--container-runtime-endpoint=unix:///run/containerd/containerd.sock",
        "--hostname-override=worker-1.example.org",
        "--image-credential-provider-bin-dir=/opt/bin",
        "--image-credential-provider-config /etc/kubernetes/credentials.yaml",
        "--kube-reserved=cpu=100m,memory=100Mi",
        "--node-ip=10.0.0.1,fd00::1",
        "--node-labels=node.kubernetes.io/role=worker,team=auth,tier=secret",
        "--pod-infra-container-image=registry.k8s.io/pause:3.10",
        "--register-with-taints=dedicated=secret:NoSchedule",
        "--rotate-certificates=true",
        "--tls-cipher-suites=TLS_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "--tls-private-key-file=/var/lib/kubelet/pki/kubelet.key",
        "-v 4",
    ]
)


@given(st.lists(gates | thresholds | usual, min_size=1))
def test_the_flags_of_a_kubelet_stay(flags: list[str]) -> None:
    line = " ".join(flags)
    units = (f"ExecStart=/usr/bin/kubelet {line}\n", f'Environment="KUBELET_EXTRA_ARGS={line}"\n')
    env_files = (f'KUBELET_EXTRA_ARGS="{line}"\n', f"#KUBELET_EXTRA_ARGS={line}\n", f"KUBELET_EXTRA_ARGS='{line}'\n")
    items = "".join(f"    - {flag}\n" for flag in flags)
    assert mask_text(line) == line
    assert [mask_unit(text) for text in units] == list(units)
    assert [mask_env_file(text) for text in env_files] == list(env_files)
    assert mask_manifest(items) == items
    assert mask_command(line.split(" ")) == line.split(" ")


APISERVER = """\
apiVersion: v1
kind: Pod
metadata:
  annotations:
    kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint: 10.0.0.1:6443
  labels: {component: kube-apiserver, tier: control-plane}
  name: kube-apiserver
  namespace: kube-system
spec:
  containers:
  - command:
    - kube-apiserver
    - --advertise-address=10.0.0.1
    - --allow-privileged=true
    - --anonymous-auth=false
    - --audit-log-path=/var/log/kubernetes/audit.log
    - --audit-policy-file=/etc/kubernetes/audit.yaml
    - --authentication-config=/etc/kubernetes/authentication.yaml
    - --authentication-token-webhook-cache-ttl=2m0s
    - --authentication-token-webhook-config-file=/etc/kubernetes/webhook.yaml
    - --authentication-token-webhook-version=v1
    - --authorization-mode=Node,RBAC
    - --authorization-webhook-cache-authorized-ttl=5m0s
    - --client-ca-file=/etc/kubernetes/pki/ca.crt
    - --enable-admission-plugins=NodeRestriction,ServiceAccount
    - --enable-bootstrap-token-auth=true
    - --encryption-provider-config=/etc/kubernetes/encryption.yaml
    - --etcd-cafile=/etc/kubernetes/pki/etcd/ca.crt
    - --etcd-certfile=/etc/kubernetes/pki/apiserver-etcd-client.crt
    - --etcd-keyfile=/etc/kubernetes/pki/apiserver-etcd-client.key
    - --etcd-servers=https://127.0.0.1:2379,https://10.0.0.2:2379
    - --feature-gates=ServiceAccountTokenJTI=true,CSIServiceAccountTokenSecrets=false,KubeletEnsureSecretPulledImages=true
    - --kubelet-client-certificate=/etc/kubernetes/pki/apiserver-kubelet-client.crt
    - --kubelet-client-key=/etc/kubernetes/pki/apiserver-kubelet-client.key
    - --kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname
    - --oidc-client-id=kubernetes
    - --oidc-issuer-url=https://login.example.org/auth/realms/x
    - --proxy-client-cert-file=/etc/kubernetes/pki/front-proxy-client.crt
    - --proxy-client-key-file=/etc/kubernetes/pki/front-proxy-client.key
    - --requestheader-allowed-names=front-proxy-client
    - --requestheader-client-ca-file=/etc/kubernetes/pki/front-proxy-ca.crt
    - --requestheader-extra-headers-prefix=X-Remote-Extra-
    - --requestheader-group-headers=X-Remote-Group
    - --requestheader-username-headers=X-Remote-User
    - --secure-port=6443
    - --service-account-api-audiences=https://kubernetes.default.svc
    - --service-account-extend-token-expiration=true
    - --service-account-issuer=https://kubernetes.default.svc.cluster.local
    - --service-account-key-file=/etc/kubernetes/pki/sa.pub
    - --service-account-max-token-expiration=24h0m0s
    - --service-account-signing-key-file=/etc/kubernetes/pki/sa.key
    - --service-cluster-ip-range=10.96.0.0/12
    - --tls-cert-file=/etc/kubernetes/pki/apiserver.crt
    - --tls-private-key-file=/etc/kubernetes/pki/apiserver.key
    - --token-auth-file
    - /etc/kubernetes/tokens.csv
    env:
    - name: POD_IP
      valueFrom: {fieldRef: {fieldPath: status.podIP}}
    - name: TOKEN
      valueFrom:
        secretKeyRef: {name: bootstrap-token, key: token-secret}
    image: registry.k8s.io/kube-apiserver:v1.34.0
    livenessProbe:
      failureThreshold: 8
      httpGet: {host: 10.0.0.1, path: /livez, port: 6443, scheme: HTTPS}
    name: kube-apiserver
    volumeMounts:
    - mountPath: /var/run/secrets/kubernetes.io/serviceaccount
      name: token
      readOnly: true
  automountServiceAccountToken: false
  imagePullSecrets:
  - name: registry-credentials
  priorityClassName: system-node-critical
  securityContext:
    seccompProfile:
      type: RuntimeDefault
    sysctls:
    - name: net.core.somaxconn
      value: "1024"
  tolerations:
  - effect: NoSchedule
    key: node-role.kubernetes.io/control-plane
    operator: Equal
    value: "true"
  volumes:
  - name: token
    projected:
      sources:
      - serviceAccountToken:
          expirationSeconds: 3607
          path: token
  - name: secret
    secret:
      secretName: x
  - hostPath: {path: /etc/kubernetes/pki, type: DirectoryOrCreate}
    name: k8s-certs
status: {}
"""
CONTROLLER_MANAGER = """\
    - kube-controller-manager
    - --allocate-node-cidrs=true
    - --authentication-kubeconfig=/etc/kubernetes/controller-manager.conf
    - --authorization-kubeconfig=/etc/kubernetes/controller-manager.conf
    - --bind-address=127.0.0.1
    - --cluster-signing-cert-file=/etc/kubernetes/pki/ca.crt
    - --cluster-signing-key-file=/etc/kubernetes/pki/ca.key
    - --concurrent-serviceaccount-token-syncs=5
    - --controllers=*,bootstrapsigner,tokencleaner
    - --leader-elect=true
    - --legacy-service-account-token-clean-up-period=8760h0m0s
    - --root-ca-file=/etc/kubernetes/pki/ca.crt
    - --service-account-private-key-file=/etc/kubernetes/pki/sa.key
    - --use-service-account-credentials=true
"""
KUBELET_CONFIGURATION = """\
apiVersion: kubelet.config.k8s.io/v1beta1
authentication:
  anonymous:
    enabled: false
  webhook:
    cacheTTL: 2m0s
    enabled: true
  x509:
    clientCAFile: /etc/kubernetes/pki/ca.crt
authorization:
  mode: Webhook
  webhook:
    cacheAuthorizedTTL: 5m0s
clusterDNS:
- 10.96.0.10
configMapAndSecretChangeDetectionStrategy: Watch
evictionHard:
  memory.available: 100Mi
featureGates:
  CSIServiceAccountTokenSecrets: true
  KubeletEnsureSecretPulledImages: false
imagePullCredentialsVerificationPolicy: NeverVerifyPreloadedImages
kind: KubeletConfiguration
registerWithTaints:
- effect: NoSchedule
  key: dedicated
  value: gpu
serverTLSBootstrap: true
staticPodPath: /etc/kubernetes/manifests
tlsPrivateKeyFile: /var/lib/kubelet/pki/kubelet.key
"""


@pytest.mark.parametrize("text", [APISERVER, CONTROLLER_MANAGER, KUBELET_CONFIGURATION], ids=["apiserver", "controller-manager", "kubelet"])
def test_what_kubeadm_writes_stays(text: str) -> None:
    assert mask_manifest(text) == text
    lines = text.splitlines()
    # Also line by line, but for the `value` that a lone line does not tell from an environment variable's.
    assert [mask_manifest(line) for line in lines if "value: " not in line] == [line for line in lines if "value: " not in line]


def test_a_diff_shows_that_a_secret_changes_and_not_the_secret() -> None:
    path = "/etc/default/kubelet"
    diff = FileEdit(path, b'A=old\nB=same\nKUBELET_EXTRA_ARGS="--v=2"\n', b'A=new\xff\nB=same\nKUBELET_EXTRA_ARGS="--v=3"\n').diff()
    new = hashlib.sha256(b"new\xff").hexdigest()[:8]
    assert diff.splitlines()[3:] == [
        f"-A={hidden('old')}",
        f"+A=<masked sha256:{new}>",
        f" B={hidden('same')}",
        '-KUBELET_EXTRA_ARGS="--v=2"',
        '+KUBELET_EXTRA_ARGS="--v=3"',
    ]


def test_a_diff_that_would_show_nothing_says_so() -> None:
    assert "differs" in FileEdit("/f", b"\x1b", b"\\x1b").diff()
    assert FileEdit("/f", b"x", b"x").diff() == ""
