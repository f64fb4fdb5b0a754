"""Whether the own configuration of a scheduler leaves placement its word."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from roles.engine.placement import ClusterView, differs, where
from tests.unit.placement.cluster import node, pod

PLUGINS = (
    "SchedulingGates", "PrioritySort", "NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit",
    "VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone", "PodTopologySpread", "InterPodAffinity", "DynamicResources",
    "DefaultPreemption", "NodeResourcesBalancedAllocation", "ImageLocality", "DefaultBinder", "NodeDeclaredFeatures",
)  # fmt: skip


def answer() -> dict[str, Any]:
    """What /configz of a scheduler with a default profile has, in the form of Go's fields."""
    points: dict[str, Any] = {
        point: {"Enabled": None, "Disabled": None} for point in ("PreEnqueue", "PreFilter", "Filter", "Score", "Bind")
    }
    points["MultiPoint"] = {"Enabled": [{"Name": name, "Weight": 0} for name in PLUGINS], "Disabled": None}
    arguments = [
        {"Name": "NodeAffinity", "Args": {"AddedAffinity": None}},
        {"Name": "NodeResourcesFit", "Args": {"IgnoredResources": None, "ScoringStrategy": {"Type": "LeastAllocated"}}},
        {"Name": "PodTopologySpread", "Args": {"DefaultConstraints": None, "DefaultingType": "System"}},
    ]
    profile = {"SchedulerName": "default-scheduler", "Plugins": points, "PluginConfig": arguments}
    return {"componentconfig": {"Profiles": [profile], "Extenders": None}}


def profile_of(found: dict[str, Any]) -> dict[str, Any]:
    profile: dict[str, Any] = found["componentconfig"]["Profiles"][0]
    return profile


def small(value: Any) -> Any:
    """The same, with the keys of the file: so a scheduler of 1.36 answers."""
    if isinstance(value, dict):
        return {key[:1].lower() + key[1:]: small(one) for key, one in value.items()}
    return [small(one) for one in value] if isinstance(value, list) else value


def test_a_default_profile_and_other_scores_are_judged() -> None:
    found = answer()
    assert differs(found) == differs(small(found)) == differs(small(found["componentconfig"])) == ""
    profile_of(found)["PluginConfig"][1]["Args"]["ScoringStrategy"] = {"Type": "MostAllocated"}
    profile_of(found)["Plugins"]["Score"] = {"Enabled": [{"Name": "OwnScore"}], "Disabled": [{"Name": "*"}]}
    found["componentconfig"]["Extenders"] = [{"URLPrefix": "http://x", "PrioritizeVerb": "score"}]
    # A second profile is for pods that name it, which are not judged.
    second = copy.deepcopy(profile_of(found)) | {"SchedulerName": "second", "Plugins": {}}
    found["componentconfig"]["Profiles"].append(second)
    assert differs(found) == ""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda found: profile_of(found)["Plugins"]["MultiPoint"]["Enabled"].pop(7), "the plugin NodeResourcesFit is off"),
        (lambda found: profile_of(found)["Plugins"]["Filter"].update(Disabled=[{"Name": "NodePorts"}]), "the plugin NodePorts is off"),
        (lambda found: profile_of(found)["Plugins"]["Filter"].update(Disabled=[{"Name": "*"}]), "is off"),
        (lambda found: profile_of(found)["Plugins"]["PreEnqueue"].update(Disabled=[{"Name": "SchedulingGates"}]), "SchedulingGates is off"),
        (lambda found: profile_of(found)["Plugins"]["MultiPoint"]["Enabled"].append({"Name": "Own"}), "the plugin Own decides too"),
        (lambda found: profile_of(found)["Plugins"]["Filter"].update(Enabled=[{"Name": "Own"}]), "the plugin Own decides too"),
        (lambda found: profile_of(found)["PluginConfig"][0]["Args"].update(AddedAffinity={"x": 1}), "NodeAffinity has addedaffinity"),
        (lambda found: profile_of(found)["PluginConfig"][1]["Args"].update(IgnoredResources=["x/y"]), "ignoredresources"),
        (
            lambda found: profile_of(found)["PluginConfig"][2]["Args"].update(DefaultConstraints=[{"WhenUnsatisfiable": "DoNotSchedule"}]),
            "default constraints",
        ),
        (lambda found: found["componentconfig"].update(Extenders=[{"URLPrefix": "http://x", "FilterVerb": "f"}]), "the extender http://x"),
        (lambda found: profile_of(found).update(SchedulerName="own"), "no profile default-scheduler"),
        (lambda found: found.clear(), "no profile default-scheduler"),
        (lambda found: found.update(componentconfig="odd"), "no profile default-scheduler"),
    ],
)
def test_what_decides_otherwise_is_named(change: Any, words: str) -> None:
    found = answer()
    change(found)
    assert words in differs(found)


def test_a_cluster_that_cannot_be_judged_says_why() -> None:
    view = ClusterView([node("w1")], [], unknown="kube-scheduler of cp1 runs with --config: x")
    found = where(pod("a"), view)
    assert found.outcome == "not judged" and "kube-scheduler of cp1" in str(found)
