"""What a metrics-server needs, and whether the metrics API works."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from roles.engine.certificates import Certificate, parse_certificates
from roles.engine.kube.fields import with_meta
from roles.engine.transaction import ObjectsRecord
from roles.metrics_server import (
    ClusterNeeds,
    DesiredServer,
    Preflight,
    in_one_line,
    judge,
    objects,
    own_pod,
    places,
    plan_objects,
    plan_undo,
    read_server,
    unasked,
    unspread,
)
from roles.metrics_server.health import Installed, remarks, resolution, unavailable
from roles.metrics_server.health import judge as health
from roles.metrics_server.manifests import differing, kept, requests
from roles.metrics_server.model import MetricsServer
from roles.metrics_server.places import Places
from roles.metrics_server.preflight import ApiServer, KubeletFacts
from tests.unit.api.world import Authority
from tests.unit.metrics_server.world import FLAGS, IMAGE, NOW, WEBHOOK, desired, kubelet, live, metrics, needs, node, pod, recorded, server


def judged(found: ClusterNeeds | None = None, wanted: DesiredServer | None = None) -> Preflight:
    return judge(found or needs(), wanted or desired(), NOW)


def test_a_cluster_that_has_all() -> None:
    found = judged()
    assert (found.refusals, found.warnings) == ([], []) and len(found.fine) == 4


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"servers": []}, "no kube-apiserver of the inventory"),
        ({"servers": [server({**FLAGS, "proxy-client-cert-file": None})]}, "no --proxy-client-cert-file"),
        ({"published": None}, "does not publish the CA"),
        ({"published": {"data": {"client-ca-file": "x"}}}, "does not publish the CA"),
        (
            {"servers": [server(reaches=False)]},
            "let it: deploys/control_plane_flags.py --data control_plane_flags=kube-apiserver:enable-agg",
        ),
        ({"servers": [server({**FLAGS, "enable-aggregator-routing": "false"}, reaches=False)]}, "cannot reach Services"),
        ({"kubelets": [kubelet(authentication={"webhook": {"enabled": False}})]}, "no webhook authentication"),
        ({"kubelets": [kubelet(problem="self-signed certificate")]}, r"certificates that the cluster's CA does not prove (self-signed"),
        ({"kubelets": [KubeletFacts("w1", None, None, "no route")]}, "the kubelets of w1 cannot be read: no route"),
        ({"kubelets": [KubeletFacts("w1", WEBHOOK, None, "no route")]}, "the certificates of w1 are not known: no route"),
    ],
)
def test_what_is_missing_is_named_with_the_way_out(changed: dict[str, Any], words: str) -> None:
    found = judged(needs(**changed)).refusals
    assert any(words in one for one in found), found
    assert all(";" in one for one in found)


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("value", [None, ""])
def test_each_flag_of_the_aggregation_is_needed(flag: str, value: str | None) -> None:
    found = judged(needs(servers=[server({**FLAGS, flag: value})]))
    assert any(f"--{flag} (" in text and "control_plane_flags" in text for text in found.refusals)
    assert not any("aggregation" in text for text in found.fine)


def test_the_certificate_of_the_front_proxy() -> None:
    authority, other = Authority("front-proxy-ca"), Authority("another")
    (own,) = parse_certificates(authority.issue("front-proxy-client")[0])
    known = {**FLAGS, "requestheader-allowed-names": "front-proxy-client", "proxy-client-cert-file": "/pki/f.crt"}
    (ca,), (foreign,) = (tuple(parse_certificates(one.pem)) for one in (authority, other))
    soon = own.not_after - timedelta(hours=1)

    def said(now: datetime = soon, cas: tuple[Certificate, ...] = (ca,), **flags: str) -> list[str]:
        return judge(needs(servers=[ApiServer("cp1", {**known, **flags}, 36, True, own, cas)]), desired(), now).refusals

    assert said() == said(cas=(foreign, ca)) == []
    (ended,) = said(own.not_after + timedelta(hours=1))
    assert "cp1: /pki/f.crt expired on" in ended and "`kubeadm certs renew front-proxy-client`" in ended
    # A renewal would keep the wrong name, and fails if there are no usages.
    (other_ca,), (name,) = said(cas=(foreign,)), said(**{"requestheader-allowed-names": "a, b"})
    assert "/pki/f.crt is not signed by a CA of --requestheader-client-ca-file" in other_ca
    assert "is for front-proxy-client, and --requestheader-allowed-names has a, b" in name
    for text in (other_ca, name):
        assert (
            "certs renew" not in text and "move it and its key away, recreate them (`kubeadm init phase certs front-proxy-client`)" in text
        )


def test_a_certificate_that_was_not_read_is_not_called_valid() -> None:
    for changed in ({"proxy": None}, {"proxy_ca": ()}):
        found = judged(needs(servers=[server(**changed)]))
        assert found.refusals == [] and len(found.warnings) == 1 and "cp1: daytwo cannot read a certificate in x (--" in found.warnings[0]
        assert not [text for text in found.fine if "valid certificate" in text]
    assert any("and a valid certificate" in text for text in judged().fine)


@pytest.mark.parametrize(("mode", "webhook", "fine"), [("Webhook", True, True), ("Webhook", False, False), ("AlwaysAllow", False, True)])
def test_how_a_kubelet_knows_a_metrics_server(mode: str, webhook: bool, fine: bool) -> None:
    one = kubelet(authentication={"webhook": {"enabled": webhook}}, authorization={"mode": mode})
    assert (judged(needs(kubelets=[one])).refusals == []) == fine


def test_an_api_server_that_routes_to_pods_need_not_reach_services() -> None:
    assert judged(needs(servers=[server({**FLAGS, "enable-aggregator-routing": "true"}, reaches=False)])).refusals == []


def test_what_two_deploys_set_is_one_command() -> None:
    """Those that a cluster of kubeadm without kube-proxy on its control plane needs."""
    found = judged(needs(servers=[server(reaches=False)], kubelets=[kubelet("w1", "bad")])).refusals
    first, text = in_one_line(found)
    assert text.endswith(
        "control_plane_flags.py --data control_plane_flags=kube-apiserver:enable-aggregator-routing=true && deploys/kubelet_certificates.py"
    )
    assert first == found[0] and in_one_line(found[:1]) == found[:1]


def test_many_kubelets_share_a_line() -> None:
    (text,) = judged(needs(kubelets=[kubelet(f"w{number}", "bad") for number in range(9)])).refusals
    assert "w0, w1, w2, w3, w4 and 4 more" in text


@pytest.mark.parametrize(
    ("image", "minor", "words"),
    [
        ("r.example.com/m:v0.9.0", 33, "metrics-server 0.9 is made for Kubernetes 1.34 and later, and this is 1.33; use 0.8.x"),
        ("r.example.com/m:v0.9.0", 32, "and this is 1.32, where it was seen to work all the same; use 0.8.x"),
        ("r.example.com/m:v0.8.1", 30, "use 0.7.x"),
        ("r.example.com/m:stable", 36, "set metrics_server.version"),
        (f"r.example.com/m@sha256:{'a' * 64}", 36, "set metrics_server.version"),
    ],
)
def test_versions(image: str, minor: int, words: str) -> None:
    (text,) = judged(needs(servers=[server(minor=minor)]), desired(image)).refusals
    assert words in text
    if "use 0" in words:
        found = judged(needs(servers=[server(minor=minor)]), desired(image, allow_unsupported=True))
        assert found.refusals == [] and "made for" in found.warnings[0]


def test_a_version_that_the_table_does_not_have_is_a_warning() -> None:
    found = judged(wanted=desired("r.example.com/m:v0.12.0"))
    assert found.refusals == [] and "0.12 is not in daytwo's table" in found.warnings[0]


def test_network_policies_for_all_pods_are_a_warning() -> None:
    policies = [
        {"metadata": {"name": "deny"}, "spec": {"podSelector": {}}},
        {"metadata": {"name": "dns"}, "spec": {"podSelector": {"a": "b"}}},
    ]
    (text,) = judged(needs(policies=policies)).warnings
    assert "(deny)" in text


def found_places(nodes: list[dict[str, Any]], *pods: dict[str, Any]) -> Places:
    return places(nodes, pods, own_pod(MetricsServer(image=IMAGE), len(nodes)))


def test_places() -> None:
    tainted = {"taints": [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]}
    soft = {"taints": [{"key": "a", "effect": "PreferNoSchedule"}]}
    nodes = [node("cp1", **tainted), node("w1"), node("w2", unschedulable=True), node("w3", ready="Unknown"), node("w4", **soft)]
    found = found_places([*nodes, node("w5", system="windows"), node("w6", cpu="50m")])
    assert (found.able, found.full, found.replicas) == (["w1", "w4"], {}, 2)
    assert found_places(nodes[:2]).replicas == 1 and found_places(nodes[:1]).able == []


def test_a_node_without_room_is_no_place_for_a_second_replica() -> None:
    nodes = [node("w1"), node("w2")]
    found = found_places(nodes, pod("web", "w2", "1950m"))
    assert (found.able, found.full, found.replicas) == (["w1", "w2"], {"w2": "cpu: 100m requested, 50m left"}, 1)
    (one,) = found.lacking(1, asked=False)
    assert "one replica: of 2 nodes that can run it, 1 has room (w2: cpu: 100m requested, 50m left)" in one
    (two,) = found.lacking(2, asked=True)
    assert "2 replicas are asked for, and 1 of 2 nodes that can run them has room (w2: cpu" in two and "preempt" in two
    none = found_places(nodes, pod("web", "w2", "1950m"), pod("db", "w1", "2"))
    assert none.replicas == 1 and "0 of 2 nodes" in none.lacking(1, asked=False)[0]
    assert found_places(nodes).lacking(2, asked=True) == found_places(nodes[:1]).lacking(1, asked=False) == []


def test_its_own_pods_have_their_room_already() -> None:
    """Or a second run would remove the replica that runs on a node which has filled up since."""
    own = pod("metrics-server-a", "w2", "100m", **{"k8s-app": "metrics-server"})
    assert found_places([node("w1"), node("w2")], pod("web", "w2", "1900m"), own).full == {}


def test_replicas_that_one_connection_does_not_spread_over() -> None:
    routing = server({**FLAGS, "enable-aggregator-routing": "true"})
    assert unspread([server(), routing], 1) == unspread([routing], 2) == []
    (text,) = unspread([server(), routing], 2)
    assert text.startswith("the kube-apiserver of cp1 ") and "enable-aggregator-routing=true" in text and "control_plane_flags" in text


# ---- data


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("metrics-server:v0.9.0", "with its registry"),
        ("registry.example.com/metrics-server", "no fixed version"),
        ("registry.example.com/metrics-server:latest", "no fixed version"),
        ("registry.example.com/metrics-server:v0.9.0 --x", "is not an image"),
        ({"image": IMAGE, "replicas": 0}, "replicas"),
        ({"image": IMAGE, "insecure": True}, "insecure"),
        ({"image": IMAGE, "version": "new"}, "not a version"),
        (5, "write the image"),
    ],
)
def test_data_that_cannot_be_meant(given: Any, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        DesiredServer(metrics_server=given)


def test_data_of_the_cluster() -> None:
    found = read_server([("cp1", {}.get), ("w1", {"metrics_server": {"image": IMAGE, "replicas": 1}}.get)])
    assert found is not None and found.metrics_server.replicas == 1 and found.metrics_server.release == (0, 9)
    assert read_server([("cp1", {}.get)]) is None


# ---- objects


def test_the_objects() -> None:
    server = MetricsServer(image=IMAGE)
    names = [one.name for one in objects(server, 2, 3)]
    assert names[-1] == "APIService v1beta1.metrics.k8s.io" and "PodDisruptionBudget metrics-server" in names
    assert "PodDisruptionBudget metrics-server" not in [one.name for one in objects(server, 1, 1)]
    text = str(objects(server, 2, 3))
    assert "kubelet-insecure-tls" not in text and IMAGE in text
    assert (requests(100), requests(250)) == ({"cpu": "100m", "memory": "200Mi"}, {"cpu": "250m", "memory": "500Mi"})


def test_a_second_run_finds_nothing_to_do() -> None:
    wanted = objects(MetricsServer(image=IMAGE), 2, 3)
    plan = plan_objects(wanted, {one.path: live(one) for one in wanted}, force=False)
    assert plan.actions == [] and len(plan.unchanged) == len(wanted)


def test_what_differs_is_set_and_what_others_made_is_refused() -> None:
    old, new = objects(MetricsServer(image=IMAGE), 2, 3), objects(MetricsServer(image=IMAGE.replace("v0.9.0", "v0.9.1")), 2, 3)
    there = {one.path: live(one) for one in old}
    plan = plan_objects(new, there, force=False)
    (action,) = plan.actions
    assert (action.what, action.name) == ("update", "Deployment metrics-server")
    assert "spec.template.spec.containers[0].image" in action.summary
    (field,) = action.fields
    assert field.path == ("manifest",) and not differing(field.before, there[action.path])
    assert differing(field.after, there[action.path]) == ["spec.template.spec.containers[0].image"]
    assert action.about == {"path": action.path, "uid": "u1", "kind": "Deployment", "object_name": "metrics-server", "version": "apps/v1"}
    foreign = {one.path: live(one, manager="helm") for one in old}
    assert len(plan_objects(new, foreign, force=False).refusals) == len(old)
    assert plan_objects(new, foreign, force=True).refusals == []


def test_defaults_of_the_api_server_are_no_difference() -> None:
    manifest = {"spec": {"ports": [{"port": 443}], "empty": {}}}
    assert differing(manifest, {"spec": {"ports": [{"port": 443, "nodePort": 0}], "clusterIP": "10.96.0.9"}}) == []
    assert differing(manifest, {"spec": {"ports": [{"port": 444}]}}) == ["spec.ports[0].port"]
    assert differing({"a": False}, {}) == ["a"]
    assert kept(manifest, {"spec": {"ports": [{"port": 444, "x": 1}], "y": 2}}) == {"spec": {"ports": [{"port": 444}]}}


def test_the_undo_begins_with_the_last_object() -> None:
    wanted = objects(MetricsServer(image=IMAGE), 2, 3)
    there = {one.path: live(one) for one in wanted}
    record = ObjectsRecord("r1", "c1", "metrics_server", {}, tuple(recorded(one, "create", None, {}) for one in wanted))
    plan = plan_undo(record, there, force=False)
    assert [one.name for one in plan.actions] == [one.name for one in reversed(wanted)]
    assert {one.what for one in plan.actions} == {"remove"}
    assert plan_undo(record, {}, force=False).actions == []


def test_the_undo_of_a_change_restores_what_was_and_nothing_that_others_set() -> None:
    (old,) = [one for one in objects(MetricsServer(image=IMAGE), 2, 3) if one.kind == "Deployment"]
    (new,) = [one for one in objects(MetricsServer(image=IMAGE.replace("v0.9.0", "v0.9.1")), 2, 3) if one.kind == "Deployment"]
    before, after = ({"metadata": {"labels": one.manifest["metadata"]["labels"]}, "spec": one.manifest["spec"]} for one in (old, new))
    record = ObjectsRecord("r1", "c1", "metrics_server", {}, (recorded(new, "update", before, after),))
    (action,) = plan_undo(record, {new.path: live(new)}, force=False).actions
    assert action.manifest == with_meta(old.manifest, uid="u1"), "of no other object"
    other = live(new)
    other["spec"] = {**other["spec"], "replicas": 5}
    assert "foreign" in plan_undo(record, {new.path: other}, force=False).refusals[0]
    assert plan_undo(record, {new.path: live(old)}, force=False).actions == []


def test_what_others_have_created_since_a_removal_is_not_called_as_before() -> None:
    (one,) = [one for one in objects(MetricsServer(image=IMAGE), 2, 3) if one.kind == "Service"]
    before = {"metadata": {"labels": one.manifest["metadata"]["labels"]}, "spec": one.manifest["spec"]}
    record = ObjectsRecord("r1", "c1", "metrics_server", {}, (recorded(one, "remove", before, None),))
    (action,) = plan_undo(record, {}, force=False).actions
    assert (action.what, action.manifest) == ("create", one.manifest)
    assert plan_undo(record, {one.path: live(one, manager="helm")}, force=False).unchanged == [
        (one.name, "exists again, as before that run")
    ]
    other = {**live(one), "spec": {**one.manifest["spec"], "ports": []}}
    assert "someone else has created another one since" in plan_undo(record, {one.path: other}, force=False).refusals[0]


def test_a_record_cannot_name_other_objects() -> None:
    (one,) = [one for one in objects(MetricsServer(image=IMAGE), 1, 1) if one.kind == "ServiceAccount"]
    for about in ({"kind": "Secret"}, {"object_name": "../../x"}, {"object_name": ""}):
        bad = replace(recorded(one, "create", None, {}), about={"path": one.path, "kind": "ServiceAccount", "object_name": "x", **about})
        assert plan_undo(ObjectsRecord("r", "c", "m", {}, (bad,)), {one.path: live(one)}, force=False).refusals


# ---- health


def test_the_metrics_api_works() -> None:
    virtual = node("virtual-1")
    virtual["metadata"]["labels"] = {"type": "virtual-kubelet"}  # no kubelet, so no metrics of one
    found = health([node("w1"), node("w2"), node("w3", "Unknown"), virtual], [metrics("w1"), metrics("w2", 25)], [{}], NOW, 15)
    assert found.problems == () and "2 of 2 Ready nodes, the oldest sample 25 s old, window up to 15.012s; 1 pod" in found.proof


@pytest.mark.parametrize(
    ("given", "pods", "words"),
    [
        ([metrics("w1")], [{}], "no metrics of w2, which is Ready"),
        ([metrics("w1"), metrics("w2", 90)], [{}], "the metrics of w2 are old: 90 s"),
        ([metrics("w1"), {**metrics("w2"), "timestamp": "soon"}], [{}], "the metrics of w2 are old"),
        ([metrics("w1"), {**metrics("w2"), "timestamp": "2026-03-01T12:00:00"}], [{}], "the metrics of w2 are old"),
        ([metrics("w1"), metrics("w2", -7200)], [{}], "the metrics of w2 are dated 7200 s in the future: check the clocks"),
        (["w1", None, metrics("w1")], [{}], "no metrics of w2, which is Ready"),
        (5, [{}], "no metrics of w1, w2, which are Ready"),
        ({"w1": metrics("w1")}, [{}], "no metrics of w1, w2, which are Ready"),
        ([metrics("w1"), metrics("w2")], 5, "no metrics of any pod"),
        ([metrics("w1"), metrics("w2")], {"a": 1}, "no metrics of any pod"),
        ([metrics("w1"), {**metrics("w2"), "timestamp": "0001-01-01T00:00:00+23:59"}], [{}], "the metrics of w2 are old"),
        ([metrics("w1"), {**metrics("w2"), "timestamp": "9999-12-31T23:59:59-23:59"}], [{}], "the metrics of w2 are dated "),
        ([metrics("w1"), metrics("w2")], [], "no metrics of any pod"),
    ],
)
def test_it_does_not_work(given: list[Any], pods: list[Any], words: str) -> None:
    found = health([node("w1"), node("w2")], given, pods, NOW, 15)
    assert words in "; ".join(found.problems)


@pytest.mark.parametrize("metadata", [["w2"], "w2", 5, True, [{"name": "w2"}], {"name": ["w2"]}, None])
def test_an_answer_of_any_shape_is_judged(metadata: Any) -> None:
    """Whoever has registered the APIService can answer anything."""
    found = health([node("w1"), node("w2")], [metrics("w1"), {**metrics("w2"), "metadata": metadata, "window": [1]}], [{}], NOW, 15)
    assert found.problems == ("no metrics of w2, which is Ready",)


def test_the_api_service() -> None:
    assert "no metrics API" in unavailable(None)
    bad = {"type": "Available", "status": "False", "reason": "MissingEndpoints", "message": "none\x1b[2J"}
    assert unavailable({"status": {"conditions": [bad]}}) == "its APIService is not available: MissingEndpoints: none\\x1b[2J"
    assert unavailable({"status": {"conditions": [{**bad, "status": "True"}]}}) == ""
    assert "no condition" in unavailable({})


def deployment(*args: str, replicas: int = 1, **container: Any) -> dict[str, Any]:
    return {"spec": {"replicas": replicas, "template": {"spec": {"containers": [{"args": list(args), **container}]}}}}


def test_what_is_said_about_an_installation_of_somebody_else() -> None:
    texts = " ".join(remarks(Installed("helm", "kube-system/m", deployment("--kubelet-insecure-tls")), 2, False))
    assert "--kubelet-insecure-tls" in texts and "one replica" in texts and "no requests" in texts
    good = deployment("--kubelet-insecure-tls=false", replicas=2, resources={"requests": {"cpu": "1"}})
    assert remarks(Installed("helm", "kube-system/m", good), 2, True) == []
    assert "no PodDisruptionBudget" in remarks(Installed("helm", "kube-system/m", good), 2, False)[0]
    assert "no Deployment" in remarks(Installed("helm", "kube-system/m", None), 2, False)[0]
    assert (resolution(deployment("--metric-resolution=30s")), resolution(deployment()), resolution(None)) == (30, 60, 60)


def test_without_data_it_says_what_the_cluster_lacks_too() -> None:
    said = unasked(Preflight(refusals=["cp1: its kube-apiserver has no requestheader-client-ca-file"]))
    assert "no host has metrics_server in its data" in said[0]
    assert said[1:] == ["cp1: its kube-apiserver has no requestheader-client-ca-file"]
