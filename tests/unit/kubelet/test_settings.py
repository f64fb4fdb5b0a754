"""Where a field of a kubelet's configuration goes: file, drop-in or flag; and that it comes out as meant."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.engine.editing import ABSENT, flags, kubelet_config
from roles.engine.kubelet import Kubelet, ask, find, settings
from roles.engine.kubelet.values import lookup, same_setting
from roles.engine.transaction import Refusal
from tests.unit.kubelet.samples import ARGV, DROPINS, EXTRA, FOLDER, HEAD, MAIN, kubelet, written
from tests.unit.node import node
from tests.unit.node.node import parse


def after(found: Kubelet, changed: dict[str, bytes | None]) -> tuple[dict[str, Any], list[str]]:
    """The configuration and the command line that the changed files give."""
    paths = sorted({*found.dropin_paths, *(path for path in changed if found.is_dropin(path))})
    read = {path: changed.get(path, found.seen.data(path)) for path in (MAIN, *paths)}
    sources = found.sources
    for path, data in changed.items():
        if path not in read:
            sources = sources.with_file(path, data)
    merged = kubelet_config.merge(read[MAIN], [data for path in paths if (data := read[path])])
    return merged, [word.text for word in sources.resolve().argv]


def test_a_new_field_goes_to_the_configuration_file() -> None:
    made = settings.edits(kubelet(), {"maxPods": 200})
    assert set(made.files) == {MAIN} and (made.files[MAIN] or b"").decode() == HEAD + "maxPods: 200\n"
    assert made.notes == ()


def test_where_the_kubelet_reads_drop_ins_a_new_field_goes_to_one_of_daytwo_s_own() -> None:
    found = kubelet("maxPods: 100\n", {"10-site.conf": "podPidsLimit: 5\n"})
    made = settings.edits(found, {"maxPods": 200, "podPidsLimit": 6, "serializeImagePulls": False})
    assert set(made.files) == {MAIN, f"{DROPINS}/10-site.conf", f"{DROPINS}/90-daytwo.conf"}, "what is set is changed where it stands"
    assert (made.files[f"{DROPINS}/90-daytwo.conf"] or b"").decode() == HEAD + "serializeImagePulls: false\n"


def test_the_last_that_sets_it_is_the_one_that_counts() -> None:
    found = kubelet("maxPods: 100\n", {"10-a.conf": "maxPods: 110\n", "20-b.conf": "maxPods: 120\n"})
    made = settings.edits(found, {"maxPods": 200})
    assert set(made.files) == {f"{DROPINS}/20-b.conf"}
    gone = settings.edits(found, {"maxPods": ABSENT})
    assert set(gone.files) == {MAIN, f"{DROPINS}/10-a.conf", f"{DROPINS}/20-b.conf"}
    assert lookup(after(found, gone.files)[0], "maxPods") is None


def test_a_map_is_what_is_meant_though_others_add_to_it() -> None:
    found = kubelet("systemReserved: {cpu: 100m, memory: 1Gi}\n", {"10-a.conf": "systemReserved: {pid: '100'}\n"})
    made = settings.edits(found, {"systemReserved": {"cpu": "200m"}})
    assert after(found, made.files)[0]["systemReserved"] == {"cpu": "200m"}


def test_a_flag_is_changed_where_it_stands_and_told() -> None:
    found = kubelet("maxPods: 100\n", extra="--max-pods=120")
    made = settings.edits(found, {"maxPods": 200})
    assert set(made.files) == {EXTRA}
    assert flags.last_flag(after(found, made.files)[1], "max-pods") == "200"
    assert "--max-pods" in made.notes[0] and "move_flags=true" in made.notes[0]
    # A flag that says the same already is told as well: it beats what somebody may write to the file.
    same = settings.edits(found, {"maxPods": 120})
    assert not same.files and "--max-pods" in same.notes[0]


def test_with_consent_a_flag_is_moved_to_the_file() -> None:
    found = kubelet("maxPods: 100\n", extra="--max-pods=120 --v=2")
    made = settings.edits(found, {"maxPods": 120}, move_flags=True)
    configuration, argv = after(found, made.files)
    assert configuration["maxPods"] == 120 and flags.last_flag(argv, "max-pods") is None and "--v=2" in argv


def test_a_field_taken_out_leaves_no_source_behind() -> None:
    found = kubelet("maxPods: 100\n", extra="--max-pods=120 --v=2")
    configuration, argv = after(found, settings.edits(found, {"maxPods": ABSENT}).files)
    assert "maxPods" not in configuration and flags.last_flag(argv, "max-pods") is None


def test_without_a_configuration_file_there_are_flags_or_nothing() -> None:
    bare = kubelet(argv=tuple(word for word in ARGV if "--config=" not in word))
    assert flags.last_flag(after(bare, settings.edits(bare, {"maxPods": 5}).files)[1], "max-pods") == "5"
    with pytest.raises(Refusal, match=r"runs without --config, and no flag of v1\.36 sets mergeDefaultEvictionSettings"):
        settings.edits(bare, {"mergeDefaultEvictionSettings": True})


def test_thresholds_in_a_flag_have_its_own_sign() -> None:
    found = kubelet(extra="--eviction-hard=memory.available<100Mi")
    made = settings.edits(found, {"evictionHard": {"memory.available": "5%", "nodefs.available": "1Gi"}})
    assert flags.last_flag(after(found, made.files)[1], "eviction-hard") == "memory.available<5%,nodefs.available<1Gi"


def test_a_flag_given_twice_counts_as_a_whole() -> None:
    """Maps and lists add up over all places of their flag (component-base MapStringString, pflag StringSlice)."""
    found = kubelet(extra="--eviction-hard=memory.available<1Gi --eviction-hard=nodefs.available<5%")
    made = settings.edits(found, {"evictionHard": {"nodefs.available": "5%"}})
    assert flags.flag_values(after(found, made.files)[1], "eviction-hard") == ["nodefs.available<5%"]
    both = settings.edits(found, {"evictionHard": {"memory.available": "1Gi", "nodefs.available": "5%"}})
    assert both.files == {}


def test_the_running_command_line_with_the_flags_that_are_changed() -> None:
    found = kubelet(extra="--max-pods=120 --fail-swap-on --v=2")
    made = settings.edits(found, {"maxPods": 200, "failSwapOn": False})
    assert made.argv == (*ARGV, "--v=2", "--max-pods=200", "--fail-swap-on=false")
    assert settings.edits(found, {"maxPods": ABSENT}).argv == (*ARGV, "--fail-swap-on", "--v=2")


def test_a_flag_that_means_the_same_is_left_alone() -> None:
    found = kubelet(extra="--sync-frequency=60s --kube-reserved=memory=1024Mi,cpu=100m --serialize-image-pulls")
    wanted = {"syncFrequency": "1m", "kubeReserved": {"cpu": "0.1", "memory": "1Gi"}, "serializeImagePulls": True}
    assert settings.edits(found, wanted).files == {}


def test_a_flag_with_a_form_of_its_own_is_not_guessed_at() -> None:
    found = kubelet(extra="--register-with-taints=a=b:NoSchedule")
    taints = [{"key": "a", "effect": "NoExecute"}]
    with pytest.raises(Refusal, match=r"registerWithTaints would have to be written to --register-with-taints.*move_flags=true"):
        settings.edits(found, {"registerWithTaints": taints})
    configuration, argv = after(found, settings.edits(found, {"registerWithTaints": taints}, move_flags=True).files)
    assert configuration["registerWithTaints"] == taints and flags.last_flag(argv, "register-with-taints") is None


def test_before_1_32_a_new_field_goes_to_the_file_that_is_merged_rightly() -> None:
    found = kubelet("maxPods: 100\n", {"10-a.conf": "podPidsLimit: 5\n"})
    old = replace(found, process=replace(found.process, version="v1.31.14"))
    assert set(settings.edits(old, {"resolvConf": "/etc/resolv.k8s"}).files) == {MAIN}


def test_an_empty_list_is_written_where_the_default_is_another() -> None:
    found = kubelet()
    made = settings.edits(found, {"enforceNodeAllocatable": []})
    assert after(found, made.files)[0]["enforceNodeAllocatable"] == []
    again = kubelet("enforceNodeAllocatable: []\n")
    assert settings.edits(again, {"enforceNodeAllocatable": []}).files == {}


def test_a_drop_in_that_comes_later_in_the_walk_is_where_a_field_is_changed() -> None:
    found = kubelet("maxPods: 100\n", {"10-a.conf": "maxPods: 110\n", "10-a/z.conf": "maxPods: 120\n"})
    assert set(settings.edits(found, {"maxPods": 200}).files) == {f"{DROPINS}/10-a.conf"}


def test_drop_ins_of_1_28_are_left_alone() -> None:
    found = kubelet("maxPods: 100\n", {"10-a.conf": ""})
    old = replace(found, process=replace(found.process, version="v1.28.15"))
    with pytest.raises(Refusal, match=r"--config-dir=/etc/kubelet\.d: a kubelet of v1\.28 fills each drop-in with defaults"):
        settings.edits(old, {"maxPods": 5})
    assert settings.edits(replace(found, process=replace(found.process, version="v1.29.15")), {"maxPods": 5}).files


def test_a_kubelet_of_1_29_is_asked_with_what_it_needs_for_drop_ins() -> None:
    found = kubelet("maxPods: 100\n", {"10-a.conf": ""})
    assert "config_dir_alpha=yes\n" in ask.ask_kubelet(found, found.process.argv, {})
    assert "config_dir_alpha=\n" in ask.ask_kubelet(kubelet(), ARGV, {})


def test_a_message_shows_values_as_a_file_has_them() -> None:
    found = kubelet("", {"95-z.conf": "authentication: null\n"})
    with pytest.raises(Refusal) as refused:
        settings.edits(found, {"authentication.anonymous.enabled": False})
    assert "authentication.anonymous.enabled: its sources would result in (not set), not false" in str(refused.value)


def test_a_drop_in_that_says_null_is_where_the_field_is_set() -> None:
    found = kubelet("maxPods: 100\n", {"10-a.conf": "maxPods: null\n"})
    made = settings.edits(found, {"maxPods": 200})
    assert set(made.files) == {f"{DROPINS}/10-a.conf"} and after(found, made.files)[0]["maxPods"] == 200


def test_a_flag_in_a_package_s_unit_is_told_with_its_name() -> None:
    path = "/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf"
    unit = node.KUBEADM_DROPIN.replace(b"--config=/var", b"--max-pods=7 --config=/var")
    found = find(parse("n1", node.answer(argv=(ARGV[0], *ARGV[1:3], "--max-pods=7", ARGV[3]), dropins={path: unit})))
    with pytest.raises(Refusal, match=rf"n1: --max-pods is set in {path}, which belongs to a package.*systemctl edit kubelet\.service"):
        settings.edits(found, {"maxPods": 8})


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "maxPods": st.integers(1, 500),
    "serializeImagePulls": st.booleans(),
    "containerLogMaxSize": st.sampled_from(["10Mi", "1Gi"]),
    "systemReserved": st.dictionaries(st.sampled_from(["cpu", "memory", "pid"]), st.sampled_from(["1", "100m", "1Gi"]), min_size=1),
    "evictionHard": st.dictionaries(
        st.sampled_from(["memory.available", "nodefs.available", "pid.available"]), st.sampled_from(["5%", "1Gi"]), min_size=1
    ),
    "clusterDNS": st.lists(st.sampled_from(["10.0.0.10", "fd00::a"]), min_size=1, unique=True),
    "authentication.webhook.cacheTTL": st.sampled_from(["30s", "2m0s"]),
}
FIELDS = st.fixed_dictionaries({}, optional=VALUES)
WISHES = st.fixed_dictionaries({}, optional={name: strategy | st.just(ABSENT) for name, strategy in VALUES.items()})
FLAGS = st.sets(
    st.sampled_from(["--max-pods=77", "--eviction-hard=memory.available<9%", "--system-reserved=cpu=1", "--cluster-dns=10.0.0.1"])
)


@given(FIELDS, st.none() | st.dictionaries(st.sampled_from(["10-a.conf", "95-z.conf"]), FIELDS), FLAGS, WISHES, st.booleans())
def test_what_is_wanted_comes_out_and_is_then_found(
    main: dict[str, Any], dropins: dict[str, dict[str, Any]] | None, extra: set[str], wanted: dict[str, Any], move: bool
) -> None:
    found = kubelet(
        written(main), None if dropins is None else {name: written(fields) for name, fields in dropins.items()}, " ".join(sorted(extra))
    )
    made = settings.edits(found, wanted, move_flags=move)
    configuration, argv = after(found, made.files)
    names = {"maxPods": "max-pods", "evictionHard": "eviction-hard", "systemReserved": "system-reserved", "clusterDNS": "cluster-dns"}
    for name in VALUES:
        text = flags.last_flag(argv, names[name]) if name in names else None
        meant = wanted.get(name)
        if name not in wanted:
            assert text == (flags.last_flag([*extra], names[name]) if name in names else None)
            assert same_setting(lookup(configuration, name), lookup(found.configuration, name))
        elif meant is ABSENT:
            assert text is None and lookup(configuration, name) is None
        elif text is not None:
            assert not move and sorted(text.split(",")) == sorted(settings.flag_text(names[name], meant).split(","))
        else:
            assert same_setting(lookup(configuration, name), meant)
    again = kubelet_after(found, made.files, argv)
    assert settings.edits(again, wanted, move_flags=move).files == {}


def kubelet_after(found: Kubelet, changed: dict[str, bytes | None], argv: list[str]) -> Kubelet:
    files = {path: file.data for path, file in found.seen.files.items()} | changed
    units = {path: data for path, data in files.items() if path.endswith(".conf") and "kubelet.service.d" in path and data is not None}
    rest = {path: data for path, data in files.items() if path not in units and not path.endswith("kubelet.service")}
    extra = FOLDER if found.dropin_folder else ()
    return find(parse("n1", node.answer(argv=argv, files=rest, dropins=units, extra=extra)))
