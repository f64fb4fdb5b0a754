"""The table of a kubelet's fields and flags, and what is refused by it."""

from __future__ import annotations

import re
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from roles.engine.kubelet import schema
from roles.engine.kubelet.schema import check, field_for_flag, fields, flag_for, flags, needs_more
from tests.unit.kubelet import samples

MINORS = range(schema.OLDEST, schema.NEWEST + 1)
KINDS = re.compile(
    r"(map\[|list\[)?(string|bool|int32|int64|uint32|float|duration|duration_or_int|quantity|time|object|list\[string\])(?(1)\])"
)


def told(minor: int, wanted: dict[str, Any]) -> list[str]:
    return [str(problem) for problem in check(minor, wanted)]


# ---- the table


@pytest.mark.parametrize("minor", MINORS)
def test_the_table_is_whole(minor: int) -> None:
    known = fields(minor)
    assert len(known) > 100
    for path, field in known.items():
        assert KINDS.fullmatch(field.kind), path
        parent = path.rpartition(".")[0].removesuffix("[]")
        assert not parent or known[parent].kind in ("object", "list[object]"), path
        assert field.since <= minor <= (field.until or minor)
        assert field.default is None or check(minor, samples.nested(path, field.default)) == []
        assert field.flag is None or field_for_flag(minor, field.flag) == path
    for name, flag in flags(minor).items():
        assert flag.field is None or flag.field in known, name
        assert re.fullmatch(r"[a-z0-9-]+", name)


def test_no_minor_is_guessed() -> None:
    for minor in (schema.OLDEST - 1, schema.NEWEST + 1):
        for ask in (fields, flags):
            with pytest.raises(LookupError, match=f"1.{minor} are not known"):
                ask(minor)


@pytest.mark.parametrize(
    ("path", "since", "until"),
    [
        ("maxPods", 21, None),
        ("memorySwap.swapBehavior", 22, None),
        ("logging.sanitization", 21, 23),
        ("containerRuntimeEndpoint", 27, None),
        ("mergeDefaultEvictionSettings", 33, None),
        ("tlsCurvePreferences", 36, None),
        ("defaultPodSysctls", 37, None),
    ],
)
def test_when_a_field_came_and_went(path: str, since: int, until: int | None) -> None:
    assert [minor for minor in MINORS if path in fields(minor)] == list(range(since, (until or schema.NEWEST) + 1))


@pytest.mark.parametrize(
    ("minor", "path", "default"),
    [
        (36, "maxPods", 110),
        (26, "kubeAPIQPS", 5),
        (27, "kubeAPIQPS", 50),
        (36, "memoryThrottlingFactor", 0.9),
        (37, "memoryThrottlingFactor", None),
        (34, "failCgroupV1", False),
        (35, "failCgroupV1", True),
        (36, "evictionPressureTransitionPeriod", "5m"),
        (
            29,
            "evictionHard",
            {"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%", "imagefs.available": "15%"},
        ),
        (36, "staticPodPath", None),
    ],
)
def test_defaults(minor: int, path: str, default: object) -> None:
    assert fields(minor)[path].default == default


@pytest.mark.parametrize(
    ("minor", "flag", "path"),
    [
        (36, "eviction-hard", "evictionHard"),
        (36, "pod-max-pids", "podPidsLimit"),
        (36, "pod-manifest-path", "staticPodPath"),
        (36, "anonymous-auth", "authentication.anonymous.enabled"),
        (36, "seccomp-default", "seccompDefault"),
        (36, "v", "logging.verbosity"),
        (22, "v", None),
        (26, "container-runtime-endpoint", None),
        (27, "container-runtime-endpoint", "containerRuntimeEndpoint"),
        (30, "iptables-drop-bit", "iptablesDropBit"),
        (31, "iptables-drop-bit", None),
        (24, "kernel-memcg-notification", "kernelMemcgNotification"),
        (24, "experimental-kernel-memcg-notification", "kernelMemcgNotification"),
        (36, "node-ip", None),
        (36, "no-such-flag", None),
        (36, "eviction_hard", "evictionHard"),
    ],
)
def test_flags_and_their_fields(minor: int, flag: str, path: str | None) -> None:
    assert field_for_flag(minor, flag) == path
    if path and "experimental" not in flag:
        assert flag_for(minor, path) == flag.replace("_", "-")


def test_fields_without_a_flag() -> None:
    assert flag_for(36, "mergeDefaultEvictionSettings") is None
    assert flag_for(31, "iptablesDropBit") is None
    assert flag_for(36, "noSuchField") is None


def test_flags_of_their_releases() -> None:
    assert "config-dir" in flags(28) and "config-dir" not in flags(27)
    assert "network-plugin" in flags(23) and "network-plugin" not in flags(24)
    assert "pod-infra-container-image" in flags(34) and "pod-infra-container-image" not in flags(35)
    assert [name for name in ("fail-swap-on", "eviction-hard", "max-pods") if flags(36)[name].switch] == ["fail-swap-on"]


def test_a_field_without_effect() -> None:
    assert [minor for minor in MINORS if fields(minor)["streamingConnectionIdleTimeout"].useless] == [34, 35, 36, 37]


# ---- types


@pytest.mark.parametrize("minor", MINORS)
def test_every_field_takes_its_type_and_no_other(minor: int) -> None:
    for path, field in fields(minor).items():
        assert told(minor, samples.nested(path, samples.good(field))) == []
        for value in [*samples.mistyped(field), None]:
            problems = check(minor, samples.nested(path, value))
            shown = path.replace("[]", "[0]")
            assert len(problems) == 1 and problems[0].path.startswith(shown), (path, value, problems)


@pytest.mark.parametrize("minor", MINORS)
def test_every_unknown_name_is_refused(minor: int) -> None:
    for path in fields(minor):
        leaf = path.rpartition(".")[2]
        wrong_case, longer = (told(minor, samples.nested(name, 1)) for name in samples.misspelt(path))
        assert len(wrong_case) == 1 and wrong_case[0].endswith(f"names are case-sensitive; write {leaf}"), wrong_case
        assert len(longer) == 1 and "has no such field" in longer[0] and leaf in longer[0]


PASSED_OVER = "a kubelet 1.{} has no such field, and would ignore it with only a line in its log"


@pytest.mark.parametrize(
    ("minor", "wanted", "message"),
    [
        (36, {"maxPod": 5}, f"maxPod: {PASSED_OVER}; did you mean maxPods?"),
        (36, {"MaxPods": 5}, f"MaxPods: {PASSED_OVER}: names are case-sensitive; write maxPods"),
        (36, {"max-pods": 5}, f"max-pods: {PASSED_OVER}; that is a flag; its field is maxPods"),
        (36, {"--max_pods": 5}, f"--max_pods: {PASSED_OVER}; that is a flag; its field is maxPods"),
        (
            36,
            {"authentication.anonymous.enabled": True},
            f"authentication.anonymous.enabled: {PASSED_OVER}; "
            "nest it as the configuration file does: authentication: {anonymous: {enabled: ...}}",
        ),
        (
            36,
            {"memorySwap": {"memorySwap.swapBehavior": ""}},
            f"memorySwap.memorySwap.swapBehavior: {PASSED_OVER}; nest it as the configuration file does: memorySwap: {{swapBehavior: ...}}",
        ),
        (36, {"swapBehavior": "NoSwap"}, f"swapBehavior: {PASSED_OVER}; did you mean memorySwap.swapBehavior?"),
        (36, {"xyz": 5}, f"xyz: {PASSED_OVER}"),
        (32, {"mergeDefaultEvictionSettings": True}, f"mergeDefaultEvictionSettings: {PASSED_OVER}: it exists since 1.33"),
        (36, {"logging": {"sanitization": True}}, f"logging.sanitization: {PASSED_OVER}: it was removed in 1.24"),
        (36, {"kind": "KubeletConfiguration"}, "kind: names the kind of the file, and is not a setting; leave it out"),
        (36, {"maxPods": "5"}, "maxPods: must be a whole number, not the text '5'; write 5 without quotes"),
        (36, {"maxPods": "many"}, "maxPods: must be a whole number, not the text 'many'"),
        (36, {"maxPods": True}, "maxPods: must be a whole number, not the boolean true"),
        (36, {"maxPods": 2**31}, "maxPods: is out of the range of int32, -2147483648 to 2147483647: 2147483648"),
        (36, {"failSwapOn": "false"}, "failSwapOn: must be true or false, not the text 'false'; write true or false, without quotes"),
        (36, {"syncFrequency": 60}, "syncFrequency: must be a duration, not the number 60; give it a unit, in quotes"),
        (36, {"syncFrequency": "60"}, "syncFrequency: is not a duration: '60'; write it as 30s, 5m or 1h30m (units ns, us, ms, s, m, h)"),
        (36, {"containerLogMaxSize": 10}, "containerLogMaxSize: must be text, not the number 10; put it in quotes"),
        (36, {"containerLogMaxSize": "10 MB"}, "containerLogMaxSize: is not a quantity: '10 MB'; write it as 500Mi, 1Gi or 200m"),
        (36, {"systemReserved": {"cpu": "-1"}}, "systemReserved.cpu: cannot be negative: '-1'"),
        (
            36,
            {"systemReserved": {"memroy": "1Gi"}},
            "systemReserved.memroy: is not one of the allowed names: cpu, memory, ephemeral-storage, pid; did you mean 'memory'?",
        ),
        (36, {"systemReserved": {"pid": 100}}, "systemReserved.pid: must be text, not the number 100; put it in quotes"),
        (36, {"systemReserved": {5: "1"}}, "systemReserved: has a key that is not a text: the number 5; put it in quotes"),
        (36, {"qosReserved": {"memory": "0.5"}}, "qosReserved.memory: is not a percentage: '0.5'; write it as 50%"),
        (
            36,
            {"cgroupDriver": "system"},
            "cgroupDriver: is not one of the allowed values (cgroupfs, systemd): 'system'; did you mean 'systemd'?",
        ),
        (
            36,
            {"cpuManagerPolicy": "Static"},
            "cpuManagerPolicy: is not one of the allowed values (none, static): 'Static'; did you mean 'static'?",
        ),
        (
            36,
            {"enforceNodeAllocatable": ["pods", "x"]},
            "enforceNodeAllocatable[1]: is not one of the allowed values (none, pods, system-reserved",
        ),
        (36, {"clusterDNS": "10.0.0.10"}, "clusterDNS: must be a list of texts, not the text '10.0.0.10'; write [ ] around it"),
        (
            36,
            {"evictionHard": "memory.available<1Gi"},
            "evictionHard: must be a mapping, not the text 'memory.available<1Gi'; write {name: text}",
        ),
        (36, {"memorySwap": "NoSwap"}, "memorySwap: must be a mapping of fields, not the text 'NoSwap'; its fields: swapBehavior"),
        (36, {"maxPods": None}, "maxPods: has no value (null): a kubelet treats it as not set, or stops; leave the field out"),
        (36, {"registerWithTaints": [{"key": "a"}, {"Key": "b"}]}, f"registerWithTaints[1].Key: {PASSED_OVER}: names are case-sensitive"),
        (27, {"logging": {"flushFrequency": "5s"}}, "logging.flushFrequency: must be a whole number, not the text '5s'"),
    ],
)
def test_a_problem_says_the_rule_and_the_way_out(minor: int, wanted: dict[str, Any], message: str) -> None:
    found = told(minor, wanted)
    assert len(found) == 1
    assert found[0].startswith(message.replace("{}", str(minor)))


def test_values_of_their_releases() -> None:
    for minor in MINORS:
        taken = [
            value
            for value in ("", "NoSwap", "LimitedSwap", "UnlimitedSwap")
            if "memorySwap" in fields(minor) and not check(minor, {"memorySwap": {"swapBehavior": value}})
        ]
        assert taken == ([] if minor < 22 else ["", "LimitedSwap", "UnlimitedSwap"] if minor < 30 else ["", "NoSwap", "LimitedSwap"])


def test_all_problems_are_told() -> None:
    wanted = {"maxPods": "5", "foo": 1, "systemReserved": {"cpu": 1, "memory": "x"}, "clusterDNS": [1, "a", True]}
    assert [problem.path for problem in check(36, wanted)] == [
        "maxPods", "foo", "systemReserved.cpu", "systemReserved.memory", "clusterDNS[0]", "clusterDNS[2]",
    ]  # fmt: skip


_unit = st.sampled_from(["ns", "us", "µs", "ms", "s", "m", "h"])
_number = st.from_regex(r"([0-9]{1,3}(\.[0-9]{0,3})?|\.[0-9]{1,3})", fullmatch=True)


@given(st.sampled_from(["", "+", "-"]), st.lists(st.tuples(_number, _unit), min_size=1, max_size=4))
def test_durations_as_go_reads_them(sign: str, parts: list[tuple[str, str]]) -> None:
    text = sign + "".join(number + unit for number, unit in parts)
    assert told(36, {"syncFrequency": text}) == []


@pytest.mark.parametrize("text", samples.DURATIONS)
def test_durations(text: str) -> None:
    assert told(36, {"syncFrequency": text}) == []


@pytest.mark.parametrize("text", samples.NO_DURATIONS)
def test_no_durations(text: str) -> None:
    assert len(check(36, {"syncFrequency": text})) == 1


@pytest.mark.parametrize("text", samples.QUANTITIES)
def test_quantities(text: str) -> None:
    assert told(36, {"containerLogMaxSize": text, **samples.limits(text)}) == []


# The last three are nought, or one, to Kubernetes: nobody means that.
@pytest.mark.parametrize("text", [*samples.NO_QUANTITIES, "Gi", ".", " 1"])
def test_no_quantities(text: str) -> None:
    assert len(check(36, {"containerLogMaxSize": text, **samples.limits(text)})) == 2


_any: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.data(), st.sampled_from(MINORS))
def test_whatever_is_wanted_is_answered(data: st.DataObject, minor: int) -> None:
    path = data.draw(st.sampled_from(sorted(fields(minor))))
    value = data.draw(_any)
    for problem in check(minor, samples.nested(path, value)):
        assert (
            problem.rule
            and problem.path.startswith(path.replace("[]", "[0]"))
            and "None" not in str(problem).removeprefix(problem.path).replace(repr(value), "").replace("(None, Static)", "")
        )


# ---- what needs more


def test_every_field_that_needs_more_is_a_field() -> None:
    assert {*schema.OWNED, *(one.path for one in schema.NEEDS_MORE)} <= {path for minor in MINORS for path in fields(minor)}
    assert all(one.reason and one.way_out for one in schema.NEEDS_MORE)


def test_what_works_but_not_at_once_is_no_refusal() -> None:
    assert [(one.path, one.refused) for one in needs_more(["seccompDefault", "registerWithTaints", "authorization.mode", "maxPods"])] == [
        ("seccompDefault", False),
        ("registerWithTaints", False),
        ("authorization.mode", True),
    ]


def test_an_object_stands_for_its_fields() -> None:
    assert [one.path for one in needs_more(["authentication", "memorySwap"])] == [
        "authentication.x509.clientCAFile",
        "authentication.webhook.enabled",
    ]
    assert needs_more(["authentication.anonymous.enabled"]) == []


def test_fields_of_other_deploys() -> None:
    assert schema.OWNED["featureGates"] == "feature_gates"
    assert {path for path, deploy in schema.OWNED.items() if deploy == "eviction"} == {
        path for path in fields(36) if path.startswith("eviction") or path == "mergeDefaultEvictionSettings"
    }
