"""What a component's own binary says of a command line and its files, without starting anything. Pure.

Two questions, both seen on 1.32 and 1.36:

- With --version a binary parses all its flags first: it refuses unknown flags, values of a wrong type, and gates (cobra, ParseFlags and
  PersistentPreRunE; k8s.io/component-base/version/verflag, PrintAndExitIfRequested). It checks nothing else.
- Each binary validates its options before it does anything, so one deliberate bad value lets it report all others and end
  (cmd/kube-apiserver/app/server.go, Validate; cmd/kube-controller-manager/app/options/options.go, Validate). kube-scheduler also has
  --write-config-to: it reads its configuration file strictly, creates its profiles with the arguments of their plugins, and ends
  (cmd/kube-scheduler/app/server.go, Setup; options/configfile.go, LogOrWriteConfig).

A binary is asked as the user nobody, who cannot read keys and kubeconfigs: flags that name them are left out of the second question.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from roles.engine.control_plane.facts import Component
from roles.engine.editing import ABSENT, FormatError, any_flag, flags, kubelet_config, yaml_text
from roles.engine.kubelet import ask

#: The second answer of a component has its name with this suffix.
RULES = "/rules"
_ASKS = "daytwo-asks"
_SCHEDULER_KIND = "KubeSchedulerConfiguration"
# Nobody can read what these name.
_UNREADABLE: Mapping[str, tuple[str, ...]] = {
    "kube-apiserver": ("service-account-signing-key-file",),
    "kube-controller-manager": (),
    "kube-scheduler": (
        "kubeconfig",
        "authentication-kubeconfig",
        "authorization-kubeconfig",
        "tls-cert-file",
        "tls-private-key-file",
        "tls-sni-cert-key",
    ),
}
# The words after which a binary validates its options and ends.
_ENDS: Mapping[str, tuple[str, ...]] = {
    "kube-apiserver": (f"--etcd-servers-overrides={_ASKS}",),
    "kube-controller-manager": (f"--controllers={_ASKS}",),
    "kube-scheduler": ("--secure-port=0", "--master=https://127.0.0.1:1", "--write-config-to=/dev/null"),
}
# What the words above, and the flags that are left out, make it say.
_EXPECTED = (
    re.compile(r"--etcd-servers-overrides invalid, must be of format: group/resource#servers, where servers are URLs, semicolon separated"),
    re.compile(r"--service-account-signing-key-file, --service-account-issuer, and --api-audiences should be specified together"),
    re.compile(rf'"{_ASKS}" is not in the list of known controllers'),
)


def ask_flags(component: Component, argv: Sequence[str], files: Mapping[str, bytes]) -> str:
    """Shell lines that ask a component's binary about its future command line. `files`: the new content of files that flags name, by path;
    a flag that names a file without readable content (b"") is left out of the second question."""
    name, process, pod = component.name, component.process, component.log_name
    form, rules, contents = both_questions(name, argv, files)
    return "\n".join(
        [ask.ask_with_files(name, process, pod, form), ask.ask_with_files(name, process, pod, rules, contents, f"{name}{RULES}")]
    )


def both_questions(name: str, argv: Sequence[str], files: Mapping[str, bytes]) -> tuple[list[str], list[str], list[bytes]]:
    """The words of both questions to a binary, and the content of the files that the second one reads (ask.CANDIDATE)."""
    words = list(argv[1:])
    # First: a flag without a value would take it for one, and the component would start.
    form = ["--version", *words]
    hidden = {flag for flag, values in any_flag.every(argv).items() if any(files.get(value) == b"" for value in values)}
    for flag in {*hidden, *_UNREADABLE[name]}:
        words = flags.without(words, flag)
    shown = {path: data for path, data in files.items() if data}
    places = {path: ask.CANDIDATE.format(number) for number, path in enumerate(shown)}
    asked = [_replaced(word, places) for word in words]
    return form, [*asked, *_ENDS[name]], [_without_kubeconfig(data) for data in shown.values()]


def _replaced(word: str, places: Mapping[str, str]) -> str:
    lead, equals, value = word.partition("=")
    return f"{lead}={places[value]}" if equals and value in places else places.get(word, word)


def _without_kubeconfig(data: bytes) -> bytes:
    """A scheduler's configuration without the kubeconfig that it names, which nobody can read; any other file unchanged."""
    try:
        return kubelet_config.edit_fields(data, {("clientConnection", "kubeconfig"): ABSENT}, _SCHEDULER_KIND)
    except FormatError:
        return data


def scheduler_kubeconfig(data: bytes) -> str | None:
    """The kubeconfig that a scheduler's configuration names, "" if it names none; None for any other file."""
    try:
        content = yaml_text.load(data)
    except FormatError:
        return None
    if content.get("kind") != _SCHEDULER_KIND:
        return None
    client = content.get("clientConnection")
    return str(client.get("kubeconfig") or "") if isinstance(client, dict) else ""


def beyond_the_trick(said: str) -> str:
    """The answer to the second question without what the question itself provokes; "" if nothing is left."""
    for pattern in _EXPECTED:
        said = pattern.sub("", said)
    if re.fullmatch(r"[\s,\[\]]*", said):
        return ""
    return re.sub(r"(?:,\s*)+", ", ", said).replace("[, ", "[").replace(", ]", "]").strip(" ,")
