"""The table of pairs, each with the place in Kubernetes 1.36 that has the rule (paths of kubernetes/kubernetes, or of its staging modules),
or the documentation of the other side."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roles.engine.control_plane import COMPONENTS
from roles.engine.findings import Severity
from roles.engine.kube.fields import containers_of, node_addresses, pod_ranges, pod_template, spec_of, status_of
from roles.engine.pairs import relations as rule
from roles.engine.pairs.model import Judged, Pair
from roles.engine.pairs.picture import (
    ETCD,
    KUBELET,
    Picture,
    Side,
    count,
    fields,
    flag,
    flags,
    kubelet_flag,
    named,
    node,
    of_object,
    served,
    trusted,
)
from roles.engine.starting import KEYS

API, MANAGER, SCHEDULER = COMPONENTS
REFUSE, WARN, NOTE = Severity
_FLAGS = "deploys/control_plane_flags.py"
_FIELDS = "deploys/kubelet_config.py"
_IPAM = "pkg/controller/nodeipam/ipam/range_allocator.go"

DNS_SERVICE = "/api/v1/namespaces/kube-system/services/kube-dns"
COREDNS = "/api/v1/namespaces/kube-system/configmaps/coredns"
KUBE_PROXY = "/api/v1/namespaces/kube-system/configmaps/kube-proxy"
FLANNEL = "/api/v1/namespaces/kube-flannel/configmaps/kube-flannel-cfg"
PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
METRICS_SERVER = "/apis/apps/v1/namespaces/kube-system/deployments/metrics-server"


# ---- what is read


def _data(one: Mapping[str, Any], key: str) -> str | None:
    """A key of a ConfigMap."""
    return (one.get("data") or {}).get(key)


def _proxy_range(one: Mapping[str, Any]) -> str | None:
    found = re.search(r'^clusterCIDR:\s*"?([^"\s#]+)', _data(one, "config.conf") or "", re.MULTILINE)
    return found[1] if found else None


def _arguments(one: Mapping[str, Any]) -> list[Any]:
    container = next(iter(containers_of(pod_template(one))), {})
    return [*(container.get("command") or ()), *(container.get("args") or ())]


def _priorities(one: Mapping[str, Any]) -> list[Any]:
    """Those of pods: of the classes, and that of pods without one."""
    return [0, *(each.get("value") for each in one.get("items") or ())]


def _probes(component: str) -> Side:
    def get(picture: Picture) -> dict[str, Any]:
        return {one.host: list(one.probes) for one in picture.of(component)}

    return Side(component, (), get, f"{component} probes of its manifest")


def _renewal() -> Side:
    def get(picture: Picture) -> dict[str, Any]:
        return {
            one.host: {"rotateCertificates": one.value("rotateCertificates"), "bootstrap": one.flags.get("bootstrap-kubeconfig")}
            for one in picture.kubelets
        }

    return Side(KUBELET, ("rotateCertificates",), get, f"{KUBELET} rotateCertificates")


_POD_CIDRS = node("spec.podCIDRs", pod_ranges)
_TAINTS = node("spec.taints", lambda one: [str(each.get("key")) for each in spec_of(one).get("taints") or ()])
_ADDRESSES = node("status.addresses types", lambda one: [kind for kind, _ in node_addresses(one)])
_INTERNAL = node("status.addresses InternalIP", lambda one: [text for kind, text in node_addresses(one) if kind == "InternalIP"])
_NODES = count("number of Node objects", lambda picture: None if picture.nodes is None else len(picture.nodes), "nodes")
_MAX_PODS = fields("maxPods")
_SERVICES = flags(API, "service-cluster-ip-range")
_CLUSTER_CIDR = flags(MANAGER, "cluster-cidr")
_RANGES = flags(
    MANAGER, "allocate-node-cidrs", "cluster-cidr", "node-cidr-mask-size", "node-cidr-mask-size-ipv4", "node-cidr-mask-size-ipv6"
)
_GRACE = flag(MANAGER, "node-monitor-grace-period", "50s")
_LEASE = fields("nodeLeaseDurationSeconds")
_MODES = flags(API, "authorization-mode", "authorization-config")
_BOUND = flag(API, "bind-address", "0.0.0.0")  # noqa: S104 - the API server's default
_PLUGINS = flags(API, "enable-admission-plugins", "disable-admission-plugins")
_SIGNER = flags(
    MANAGER,
    "controllers",
    *(f"cluster-signing{kind}-{file}-file" for kind in ("", "-kubelet-serving", "-kubelet-client") for file in ("cert", "key")),
)
_CLIENT_CA, _KUBELET_CA = named(API, "client-ca-file"), named(KUBELET, "authentication.x509.clientCAFile")
_API_CERTIFICATE, _SIGNING_CA = named(API, "tls-cert-file"), named(MANAGER, "cluster-signing-cert-file")
_TO_KUBELETS = named(API, "kubelet-client-certificate")
_SA_KEYS = named(API, "service-account-key-file")


def _numbers(component: str) -> Side:
    return count(f"number of {component} in the inventory", lambda picture: len(picture.of(component)))


def _lease(component: str, name: str, default: str) -> Side:
    return flag(component, f"leader-elect-{name}", default)


# ---- the pairs


_NETWORK = (
    Pair(
        "pods-fit-the-nodes-range", _MAX_PODS, _POD_CIDRS, "addresses suffice", rule.pods_suffice, WARN,
        "when they are used up, pods wait with `no IP addresses available`; no matter with a network plugin that has pools of its own",
        f"a smaller maxPods ({_FIELDS}), or a node with a larger range",
        "flannel-io/flannel#1309, k3s-io/k3s#5885, pkg/controller/nodeipam", own=True, found=NOTE,
    ),
    Pair(
        "pods-fit-new-ranges", _RANGES, _MAX_PODS, "addresses suffice", rule.mask_gives_pods, WARN,
        "a node that joins gets a range with fewer addresses than its kubelet takes pods",
        f"a smaller --node-cidr-mask-size before nodes join, or a smaller maxPods ({_FIELDS})",
        "kubernetes-sigs/kubespray roles/kubernetes/preinstall (kubelet_max_pods); pkg/controller/nodeipam", unset=True, one_way=True,
    ),
    Pair(
        "node-range-is-part-of-the-clusters", _RANGES, _CLUSTER_CIDR, "divides", rule.mask_fits, REFUSE,
        "the controller-manager ends at its start: `CIDR allocation failed`",
        "a mask between that of --cluster-cidr and a single address",
        "pkg/controller/nodeipam/ipam/cidrset/cidr_set.go, NewCIDRSet", own=True,
    ),
    Pair(
        "ranges-for-all-nodes", _RANGES, _NODES, "room for each", rule.enough_ranges, REFUSE,
        "nodes that join get no podCIDR (event CIDRNotAvailable), and no pod starts there",
        "a larger --cluster-cidr, or a larger --node-cidr-mask-size",
        _IPAM, unset=True,
    ),
    Pair(
        "cluster-range-covers-the-nodes", _RANGES, _POD_CIDRS, "covers", rule.keeps_nodes, REFUSE,
        "the controller-manager ends at each start, as long as a node has a range outside of it",
        "a range that has those of all nodes; nodes keep theirs until they are created again",
        f"{_IPAM}, NewCIDRRangeAllocator (`This error will keep crashing controller-manager`)", unset=True,
    ),
    Pair(
        "allocation-needs-a-range", flag(MANAGER, "allocate-node-cidrs", "false"), _CLUSTER_CIDR, "implies", rule.needs_a_range, REFUSE,
        "the controller-manager ends at its start",
        "set --cluster-cidr too, or leave --allocate-node-cidrs off",
        "cmd/kube-controller-manager/app/core.go, newNodeIpamController, validateCIDRs", own=True, unset=True,
    ),
    Pair(
        "service-range-of-both", _SERVICES, flags(MANAGER, "service-cluster-ip-range"), "equal", rule.same_networks, WARN,
        "the controller-manager keeps other addresses free of pods than those that Services get",
        f"set both in one run of {_FLAGS}",
        f"{_IPAM}, filterOutServiceRange",
    ),
    Pair(
        "services-apart-from-pods", _SERVICES, _CLUSTER_CIDR, "share no address", rule.apart, REFUSE,
        "an address may be that of a pod and of a Service: one of the two is not reached",
        "choose ranges that do not overlap",
        f"{_IPAM}, filterOutServiceRange; kubeadm ValidateServiceSubnetSize",
    ),
    Pair(
        "services-apart-from-nodes-ranges", _SERVICES, _POD_CIDRS, "share no address", rule.apart, REFUSE,
        "an address may be that of a pod and of a Service: one of the two is not reached",
        "choose a range that no node has",
        f"{_IPAM}, filterOutServiceRange",
    ),
    Pair(
        "dns-within-services", fields("clusterDNS"), _SERVICES, "within", rule.in_range, WARN,
        "it is no address of a Service of this cluster: unless something else answers there, new pods resolve no name",
        "the address of the Service kube-dns (`kubectl get service -n kube-system kube-dns`)",
        "kubernetes.io/docs/concepts/services-networking/dns-pod-service; pkg/kubelet/network/dns/dns.go",
    ),
    Pair(
        "dns-is-the-service", fields("clusterDNS"),
        of_object(DNS_SERVICE, "Service kube-dns spec.clusterIPs", lambda one: spec_of(one).get("clusterIPs")), "is one of", rule.is_dns,
        WARN,
        "new pods ask an address that is not the cluster's DNS",
        "the address of the Service, or a link-local one of a cache on the node",
        "pkg/kubelet/network/dns/dns.go, GetPodDNS",
    ),
    Pair(
        "domain-is-served", fields("clusterDomain"),
        of_object(COREDNS, "ConfigMap coredns Corefile", lambda one: _data(one, "Corefile")), "is one of", rule.zone, WARN,
        "short names of Services are not found in new pods",
        "the zone of the plugin kubernetes in the Corefile",
        "pkg/kubelet/network/dns/dns.go, generateSearchesForDNSClusterFirst",
    ),
    Pair(
        "service-address-in-the-certificate", _SERVICES, _API_CERTIFICATE, "first address is named", rule.service_has_name, REFUSE,
        "pods reach the API by that address, and do not trust what it serves",
        "a serving certificate with that address first",
        "pkg/controlplane/apiserver/options (apiServerServiceIP); cmd/kubeadm GetAPIServerAltNames", own=True,
    ),
    Pair(
        "proxy-range", _CLUSTER_CIDR, of_object(KUBE_PROXY, "ConfigMap kube-proxy clusterCIDR", _proxy_range), "equal", rule.same_networks,
        WARN,
        "kube-proxy takes traffic of pods for traffic from outside, and hides its sender, or the other way round",
        "set clusterCIDR in the ConfigMap kube-proxy too, and restart its pods",
        "k8s.io/kube-proxy config/v1alpha1 (detectLocalMode ClusterCIDR)",
    ),
    Pair(
        "flannel-range", _CLUSTER_CIDR,
        of_object(FLANNEL, "ConfigMap kube-flannel-cfg net-conf.json", lambda one: _data(one, "net-conf.json")), "equal",
        rule.flannel_network, WARN,
        "flannel refuses a node whose range is outside of its Network",
        "set Network in kube-flannel-cfg too, and restart its pods",
        "flannel-io/flannel Documentation/configuration.md",
    ),
    Pair(
        "addresses-of-each-family", kubelet_flag("node-ip"), _POD_CIDRS, "families covered", rule.same_families, WARN,
        "pods with host networking, and Services of that family, do not work on this node",
        "--node-ip with an address of each family",
        "pkg/kubelet/nodestatus/setters.go, NodeAddress; KEP-563", own=True,
    ),
    Pair(
        "node-ports-apart-from-the-kubelet", flag(API, "service-node-port-range", "30000-32767"), fields("port"), "excludes",
        rule.ports_apart, WARN,
        "a Service may take the port of the kubelets, and logs, exec and metrics of nodes go to that Service",
        "a range without it",
        "kubernetes.io/docs/reference/networking/ports-and-protocols",
    ),
    Pair(
        "node-ports-apart-from-the-api", flag(API, "service-node-port-range", "30000-32767"), flag(API, "secure-port", "6443"), "excludes",
        rule.ports_apart, WARN,
        "a Service may take the port of the API",
        "a range without it",
        "kubernetes.io/docs/reference/networking/ports-and-protocols",
    ),
)  # fmt: skip

_TRUST = (
    Pair(
        "api-trusts-kubelets", flag(API, "kubelet-certificate-authority"), served("kubelet-certificate-authority", API), "verifies",
        rule.proven_to_all, REFUSE,
        "logs, exec, metrics, and daytwo's own proofs fail on this node (x509)",
        "deploys/kubelet_certificates.py first: then kubelets serve certificates of the cluster's CA",
        "pkg/kubelet/client/kubelet_client.go; kubernetes/kubernetes#62939",
    ),
    Pair(
        "kubelets-keep-what-the-api-trusts", fields("serverTLSBootstrap"), flag(API, "kubelet-certificate-authority"), "stays on",
        rule.keeps_its_certificate, REFUSE,
        "logs, exec, metrics, and daytwo's own proofs fail on this node (x509)",
        f"leave it on, or remove --kubelet-certificate-authority first ({_FLAGS})",
        "cmd/kubelet/app/server.go, InitializeTLS; pkg/kubelet/client/kubelet_client.go", unset=True, one_way=True,
    ),
    Pair(
        "kubelets-trust-the-api", _KUBELET_CA, _TO_KUBELETS, "verifies", rule.accepts_the_api, REFUSE,
        "logs, exec, metrics, and daytwo's own proofs fail on this node (401)",
        "a CA file on the node that has the CA of --kubelet-client-certificate",
        "pkg/kubelet/client/kubelet_client.go; cmd/kubelet/app/auth.go", unset=True,
    ),
    Pair(
        "api-is-known-where-kubelets-report", _CLIENT_CA, _SIGNING_CA, "verifies", rule.verifies, REFUSE,
        "certificates that kubelets get or renew from now on are not accepted by the API: nodes go NotReady one by one",
        "a --client-ca-file that has the signing CA too",
        "pkg/controller/certificates/signer; apiserver/pkg/authentication/request/x509",
    ),
    Pair(
        "tokens-are-accepted", _SA_KEYS, named(API, "service-account-signing-key-file"), "public key of", rule.same_key, REFUSE,
        "the API does not accept the tokens that it issues: each pod that starts is refused, and controllers too",
        "name the public key of the signing key too, beside the old one",
        "pkg/serviceaccount/jwt.go; pkg/controlplane/apiserver/options/options.go", own=True,
    ),
    Pair(
        "controllers-tokens-are-accepted", _SA_KEYS, named(MANAGER, "service-account-private-key-file"), "public key of", rule.same_key,
        REFUSE,
        "tokens in Secrets, which the controller-manager signs, are not accepted by the API",
        "name the public key of that key too",
        "cmd/kube-controller-manager/app/controllermanager.go (serviceAccountTokenController)",
    ),
    Pair(
        "audience-of-the-issuer", flags(API, "service-account-issuer"), flags(API, "api-audiences"), "is one of", rule.audience, NOTE,
        "tokens that were made for the issuer's name, as older clusters did by default, are not accepted",
        "name the issuer in --api-audiences too",
        "pkg/kubeapiserver/options/authentication.go", own=True,
    ),
    Pair(
        "pods-trust-the-api", named(MANAGER, "root-ca-file"), _API_CERTIFICATE, "verifies", rule.verifies, REFUSE,
        "pods get this CA (ConfigMap kube-root-ca.crt) and do not trust the API",
        "the CA that signed the API server's certificate",
        "pkg/controller/certificates/rootcacertpublisher",
    ),
    *(
        Pair(
            f"{owner}-trusts-the-api", trusted(owner), _API_CERTIFICATE, "verifies", rule.verifies, REFUSE,
            what,
            "a certificate of the CA that the kubeconfigs have; or first that CA, beside the old one, in every kubeconfig",
            f"{source}; client-go/tools/clientcmd. Something in between that ends TLS makes no difference", found=WARN,
        )
        for owner, what, source in (
            (KUBELET, "it does not trust the API (x509): its node goes NotReady", "cmd/kubelet/app/server.go, buildKubeletClientConfig"),
            (MANAGER, "it does not trust the API (x509): no controller works", "cmd/kube-controller-manager/app/options/options.go"),
            (SCHEDULER, "it does not trust the API (x509): no pod gets a node", "cmd/kube-scheduler/app/options/options.go"),
        )
    ),
    Pair(
        "etcd-accepts-the-api", named(ETCD, "trusted-ca-file"), named(API, "etcd-certfile"), "verifies", rule.verifies, REFUSE,
        "the API server reaches no storage, and does not start",
        "a certificate of etcd's CA",
        "etcd client/pkg/transport/listener.go, ServerConfig (RequireAndVerifyClientCert)", own=True,
    ),
    Pair(
        "api-trusts-etcd", named(API, "etcd-cafile"), named(ETCD, "cert-file"), "verifies", rule.verifies, REFUSE,
        "the API server reaches no storage, and does not start",
        "the CA of etcd's certificate",
        "apiserver/pkg/storage/storagebackend/factory/etcd3.go, newETCD3Client", own=True,
    ),
    Pair(
        "extensions-trust-the-front-proxy", named(API, "requestheader-client-ca-file"), named(API, "proxy-client-cert-file"), "verifies",
        rule.verifies, REFUSE,
        "extension API servers, such as metrics-server, refuse what comes through the API",
        "a certificate of that CA",
        "apiserver/pkg/authentication/request/headerrequest", own=True,
    ),
    Pair(
        "extensions-know-the-front-proxy", flags(API, "requestheader-allowed-names"), named(API, "proxy-client-cert-file"), "has its name",
        rule.allowed_name, REFUSE,
        "extension API servers, such as metrics-server, refuse what comes through the API",
        "add the common name of that certificate",
        "apiserver/pkg/server/options/authentication.go, RequestHeaderAuthenticationOptions", own=True,
    ),
    Pair(
        "key-for-kubelets", _TO_KUBELETS, named(API, "kubelet-client-key"), "key of the certificate", rule.same_key, REFUSE,
        "the API server reaches no kubelet: logs, exec, metrics, and daytwo's own proofs",
        "the key of that certificate",
        "pkg/kubelet/client/kubelet_client.go", own=True,
    ),
    Pair(
        "serving-certificates-are-signed", fields("serverTLSBootstrap"), _SIGNER, "implies a signer", rule.signs_serving, REFUSE,
        "the kubelet waits for a certificate that nobody signs, and serves none: logs, exec and metrics fail",
        f"the controller-manager's --cluster-signing-... flags first ({_FLAGS}); approve with deploys/kubelet_certificates.py",
        "pkg/kubelet/certificate/kubelet.go; cmd/kube-controller-manager/app/certificates.go", unset=True,
    ),
    Pair(
        "client-certificates-are-signed", fields("rotateCertificates"), _SIGNER, "implies a signer", rule.signs_client, WARN,
        "the kubelet asks for a new certificate, and gets none: when its own expires, the node goes NotReady",
        f"the controller-manager's --cluster-signing-... flags ({_FLAGS})",
        "pkg/kubelet/certificate/kubelet.go; cmd/kube-controller-manager/app/certificates.go", unset=True,
    ),
    Pair(
        "signed-for-as-long-as-renewed", flag(MANAGER, "cluster-signing-duration", "8760h0m0s"), _renewal(), "implies renewal",
        rule.keeps_its_identity, WARN,
        "then the node goes NotReady",
        f"rotateCertificates: true ({_FIELDS})",
        "pkg/controller/certificates/signer; pkg/kubelet/certificate/kubelet.go", unset=True,
    ),
    *(
        Pair(
            f"ciphers-of-{component}", flags(component, "tls-cipher-suites"), least, "has one of HTTP/2", rule.ciphers_for_http2, REFUSE,
            "it serves nothing",
            "add one of them, or set VersionTLS13",
            "Go net/http, http2 ConfigureServer; apiserver/pkg/server/secure_serving.go", own=True, unset=True,
        )
        for component, least in (
            (API, flag(API, "tls-min-version")),
            (MANAGER, flag(MANAGER, "tls-min-version")),
            (SCHEDULER, flag(SCHEDULER, "tls-min-version")),
        )
    ),
    Pair(
        "ciphers-of-kubelet", fields("tlsCipherSuites"), fields("tlsMinVersion"), "has one of HTTP/2", rule.ciphers_for_http2, REFUSE,
        "the kubelet serves nothing: logs, exec, metrics, and daytwo's own proofs fail",
        "add one of them, or set tlsMinVersion: VersionTLS13",
        "Go net/http, http2 ConfigureServer; cmd/kubelet/app/server.go, InitializeTLS", own=True, unset=True,
    ),
)  # fmt: skip

_ACCESS = (
    Pair(
        "nodes-are-authorized", _MODES, _NODES, "knows the kubelets", rule.authorizes("system:nodes", "Node"), REFUSE,
        "kubelets may neither read their pods nor report: nodes go NotReady",
        "keep Node in --authorization-mode",
        "plugin/pkg/auth/authorizer/node; plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go (system:node has no subjects)",
    ),
    Pair(
        "controllers-are-authorized", _MODES, _numbers(MANAGER), "knows the controllers",
        rule.authorizes("controllers and the scheduler", "RBAC", "ABAC"), REFUSE,
        "controllers, the scheduler and administrators may do nothing",
        "keep RBAC in --authorization-mode",
        "plugin/pkg/auth/authorizer/rbac/bootstrappolicy/controller_policy.go",
    ),
    Pair(
        "nodes-are-restricted", flags(API, "authorization-mode"), _PLUGINS, "implies NodeRestriction", rule.node_is_restricted, WARN,
        "each kubelet may change the Node objects and pods of all others",
        "NodeRestriction in --enable-admission-plugins",
        "kubernetes.io/docs/reference/access-authn-authz/node; plugin/pkg/admission/noderestriction", own=True, unset=True,
    ),
    Pair(
        "needed-apis-are-on", flags(API, "runtime-config"), _numbers(MANAGER), "leaves on", rule.apis_on, REFUSE,
        "kubelets, controllers or the scheduler wait for them forever",
        "leave them on",
        "apiserver/pkg/server/options/api_enablement.go; cmd/kube-controller-manager/app/controllermanager.go",
    ),
    Pair(
        "tokens-reach-kubelets", fields("authentication.webhook.enabled"),
        of_object(METRICS_SERVER, "Deployment metrics-server", _arguments), "implies", rule.tokens_count, WARN,
        "metrics-server comes with a token: `kubectl top` and autoscalers have nothing of this node",
        f"authentication.webhook.enabled: true ({_FIELDS})",
        "cmd/kubelet/app/auth.go, BuildAuthn; kubernetes-sigs/metrics-server README",
    ),
    Pair(
        "kubelet-is-not-open", fields("authorization.mode"), fields("authentication.anonymous.enabled"), "not together", rule.closed, WARN,
        "no credential is needed to run commands in its containers",
        "authorization.mode: Webhook, and authentication.anonymous.enabled: false",
        "cmd/kubelet/app/auth.go, BuildAuthz; kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz", own=True,
    ),
    Pair(
        "nodes-have-a-preferred-address", flags(API, "kubelet-preferred-address-types"), _ADDRESSES,
        "is one of", rule.known_address, REFUSE,
        "the API does not reach this kubelet (`no preferred addresses found`): logs, exec, metrics, and daytwo's own proofs",
        "name a type that each node has, such as InternalIP",
        "pkg/util/node/node.go, GetPreferredNodeAddress",
    ),
    Pair(
        "kubelet-listens-where-the-node-is", fields("address"), _INTERNAL, "all, or one of",
        rule.listens, REFUSE,
        "the API does not reach this kubelet: logs, exec, metrics, and daytwo's own proofs",
        f"0.0.0.0, or an address of the node ({_FIELDS})",
        "pkg/kubelet/server/server.go, ListenAndServeKubeletServer; pkg/kubelet/client/kubelet_client.go", own=True,
    ),
    Pair(
        "api-listens-for-all-nodes", _BOUND, _NODES, "not loopback", rule.listens_outside, REFUSE,
        "kubelets and clients elsewhere do not reach this API server",
        "0.0.0.0, ::, or an address of the node",
        "apiserver/pkg/server/options/serving.go",
    ),
    *(
        Pair(
            f"probes-of-{component}", flag(component, "secure-port", port), _probes(component), "equal", rule.probed, REFUSE,
            "its kubelet finds it dead, and kills it again and again",
            "the same port in the probes of its manifest",
            "pkg/kubelet/prober; cmd/kubeadm/app/util/staticpod", own=True,
        )
        for component, port in ((API, "6443"), (MANAGER, "10257"), (SCHEDULER, "10259"))
    ),
    Pair(
        "goaway-needs-a-balancer", flag(API, "goaway-chance", "0"), _numbers(API), "implies several", rule.balanced, WARN,
        "clients connect again, to the same server",
        "0",
        "apiserver/pkg/server/options/server_run_options.go (--goaway-chance)",
    ),
    Pair(
        "clouds-agree", kubelet_flag("cloud-provider"), flag(MANAGER, "cloud-provider"), "equal", rule.external_cloud, NOTE,
        "the controllers of the cloud run twice, or not at all",
        "external for both, or for neither",
        "pkg/kubelet/kubelet_node_status.go; cmd/kube-controller-manager/app/core.go", unset=True,
    ),
    Pair(
        "cloud-has-initialized", kubelet_flag("cloud-provider"), _TAINTS, "is removed", rule.initialized, WARN,
        "no pod is placed on this node",
        "a cloud controller manager that runs",
        "cloud-provider/api/well_known_taints.go", own=True,
    ),
)  # fmt: skip

_TIME = (
    Pair(
        "lease-within-the-grace-period", _GRACE, _LEASE, "more than the time between renewals", rule.heartbeats(1), REFUSE,
        "a node that is well goes NotReady between two renewals, and its pods are evicted",
        f"a longer grace period, or a shorter lease ({_FIELDS})",
        "pkg/kubelet/kubelet.go (nodeLeaseRenewIntervalFraction); pkg/controller/nodelifecycle/node_lifecycle_controller.go",
    ),
    Pair(
        "several-renewals-within-the-grace-period", _GRACE, _LEASE, "several renewals", rule.heartbeats(3), WARN,
        "one or two that are late, and the node goes NotReady",
        f"a longer grace period, or a shorter lease ({_FIELDS})",
        "pkg/controller/nodelifecycle/node_lifecycle_controller.go (nodeMonitorGracePeriod must be N times more)",
    ),
    Pair(
        "status-within-the-grace-period", _GRACE, fields("nodeStatusUpdateFrequency"), "longer", rule.updates, WARN,
        "pressure of a node, and its recovery, are seen late; without leases it would go NotReady",
        f"a longer grace period, or a shorter frequency ({_FIELDS})",
        "pkg/controller/nodelifecycle/node_lifecycle_controller.go (nodeMonitorGracePeriod, nodeStatusUpdateFrequency)",
    ),
    Pair(
        "looks-within-the-grace-period", _GRACE, flag(MANAGER, "node-monitor-period", "5s"), "longer", rule.longer, WARN,
        "the controller looks less often than it judges",
        "a shorter --node-monitor-period",
        "pkg/controller/nodelifecycle/node_lifecycle_controller.go", own=True,
    ),
    *(
        Pair(
            f"lease-of-{component}", _lease(component, "lease-duration", "15s"), _lease(component, "renew-deadline", "10s"), "longer",
            rule.longer, REFUSE,
            "it ends at its start",
            "a longer lease, or a shorter deadline",
            "client-go/tools/leaderelection/leaderelection.go, NewLeaderElector", own=True,
        )
        for component in (MANAGER, SCHEDULER)
    ),
    *(
        Pair(
            f"renewals-of-{component}", _lease(component, "renew-deadline", "10s"), _lease(component, "retry-period", "2s"),
            "more than 1.2 times", rule.jittered, REFUSE,
            "it ends at its start",
            "a longer deadline, or a shorter retry period",
            "client-go/tools/leaderelection/leaderelection.go, NewLeaderElector (JitterFactor)", own=True,
        )
        for component in (MANAGER, SCHEDULER)
    ),
    *(
        Pair(
            f"one-{component}", flag(component, "leader-elect", "true"), _numbers(component), "implies one", rule.one_leader, REFUSE,
            "they change the same objects against each other",
            "leave --leader-elect on",
            "component-base/config/options/leaderelectionconfig.go",
        )
        for component in (MANAGER, SCHEDULER)
    ),
    Pair(
        "readiness-within-initialization", flag(MANAGER, "horizontal-pod-autoscaler-cpu-initialization-period", "5m0s"),
        flag(MANAGER, "horizontal-pod-autoscaler-initial-readiness-delay", "30s"), "longer", rule.longer, NOTE,
        "the delay has no further effect",
        "a shorter delay",
        "pkg/controller/podautoscaler/replica_calculator.go, groupPods", own=True,
    ),
    Pair(
        "autoscalers-see-new-metrics", flag(MANAGER, "horizontal-pod-autoscaler-sync-period", "15s"),
        of_object(METRICS_SERVER, "Deployment metrics-server --metric-resolution", _arguments), "at least", rule.scraped, NOTE,
        "autoscalers see the same metrics several times",
        "a sync period of at least the resolution",
        "kubernetes-sigs/metrics-server (--metric-resolution); cmd/kube-controller-manager/app/options/hpacontroller.go",
    ),
)  # fmt: skip

_NODE = (
    Pair(
        "shutdown-periods-have-pods", fields("shutdownGracePeriodByPodPriority"),
        of_object(PRIORITY_CLASSES, "PriorityClasses, and 0 for pods without one", _priorities), "each takes some", rule.periods_have_pods,
        NOTE,
        "no pod has such a priority: its seconds only make a shutdown wait, and other pods get the period below it",
        "the value of a PriorityClass (`kubectl get priorityclasses`)",
        "pkg/kubelet/nodeshutdown/nodeshutdown_manager.go, groupByPriority",
    ),
    Pair(
        "images-go-before-pods", fields("imageGCHighThresholdPercent"), fields("evictionHard"), "first", rule.collects_first, WARN,
        "DiskPressure comes before unused images are removed",
        f"a lower imageGCHighThresholdPercent ({_FIELDS})",
        "pkg/kubelet/eviction/helpers.go (buildSignalToNodeReclaimFuncs); pkg/kubelet/images/image_gc_manager.go", own=True,
    ),
    Pair(
        "logs-fit-the-disk", fields("containerLogMaxSize", "containerLogMaxFiles"),
        node("status.capacity ephemeral-storage", lambda one: (status_of(one).get("capacity") or {}).get("ephemeral-storage")), "a part of",
        rule.logs_fit, NOTE,
        "a few containers that write much bring DiskPressure",
        f"smaller or fewer files ({_FIELDS})",
        "pkg/kubelet/logs/container_log_manager.go; kubernetes.io/docs/concepts/cluster-administration/logging", own=True,
    ),
    Pair(
        "topology-has-something-to-align", fields("topologyManagerPolicy"), fields("cpuManagerPolicy", "memoryManagerPolicy"),
        "implies a manager", rule.aligned, NOTE,
        "the policy aligns only devices",
        "cpuManagerPolicy: static, or memoryManagerPolicy: Static",
        "pkg/kubelet/cm/topologymanager; kubernetes.io/docs/tasks/administer-cluster/topology-manager", own=True,
    ),
    *(
        Pair(
            f"burst-{rate}", fields(burst), fields(rate), "at least", rule.pool, NOTE,
            "the rate is not reached when requests come together",
            f"a larger {burst}",
            "client-go/util/flowcontrol/throttle.go; pkg/kubelet/apis/config/types.go", own=True,
        )
        for burst, rate in (("registryBurst", "registryPullQPS"), ("eventBurst", "eventRecordQPS"), ("kubeAPIBurst", "kubeAPIQPS"))
    ),
)  # fmt: skip

PAIRS: tuple[Pair, ...] = (*_NETWORK, *_TRUST, *_ACCESS, *_TIME, *_NODE)

#: Judged where daytwo knows more than two settings.
ELSEWHERE = (
    *(
        Judged(
            "key-of-the-certificate", f"{row.component} {row.certificate}", f"{row.component} {row.key}",
            "key of the certificate" + (", which is alone in its file" if row.alone else ""),
            "it does not start",
            row.source, "roles/engine/starting/judge.py",
        )
        for row in KEYS
    ),
    Judged(
        "cgroup-driver", "kubelet cgroupDriver", "driver of the container runtime", "equal",
        "no pod starts",
        "KEP-4033", "roles/kubelet_config/cgroups.py",
    ),
    Judged(
        "gates-and-versions", "feature gates of a kubelet", "those of the API server", "order and skew",
        "fields are dropped, pods wait",
        "kubernetes.io/releases/version-skew-policy", "roles/feature_gates/verdict.py",
    ),
    Judged(
        "reservations", "kubelet systemReserved, kubeReserved, evictionHard", "capacity of the node", "less in sum",
        "the kubelet does not start, or evicts",
        "pkg/kubelet/cm/node_container_manager_linux.go", "roles/engine/kubelet/allocatable.py",
    ),
    Judged(
        "reserved-memory", "kubelet reservedMemory", "reservations and evictionHard", "equal in sum",
        "the kubelet does not start",
        "pkg/kubelet/cm/memorymanager/memory_manager.go", "roles/engine/kubelet/allocatable.py",
    ),
    Judged(
        "anonymous-probes", "kube-apiserver --anonymous-auth", "probes of its manifest", "they pass",
        "its kubelet kills it again and again",
        "kubernetes/kubernetes#51076", "roles/engine/proof/prover.py",
    ),
    Judged(
        "graceful-shutdown", "kubelet shutdownGracePeriod", "logind InhibitDelayMaxSec", "not longer",
        "pods are killed in a shutdown",
        "pkg/kubelet/nodeshutdown/nodeshutdown_manager_linux.go", "the inhibitor lock, in the proof of the change",
    ),
    Judged(
        "processes-of-a-pod", "kubelet podPidsLimit", "kernel.pid_max and kernel.threads-max of the node", "less",
        "one pod may take every process of the node; above 4194304, no pod starts",
        "pkg/kubelet/stats/pidlimit/pidlimit_linux.go; the kernel's kernel/cgroup/pids.c", "roles/engine/starting/judge.py",
    ),
    Judged(
        "parallel-pulls", "kubelet maxParallelImagePulls", "kubelet serializeImagePulls", "1 or off",
        "the kubelet does not start",
        "pkg/kubelet/apis/config/validation/validation.go", "the node's own kubelet, which is asked",
    ),
    Judged(
        "swap", "kubelet failSwapOn, memorySwap", "swap areas and cgroups of the node", "fit",
        "the kubelet does not start",
        "cmd/kubelet/app/server.go", "roles/kubelet_config/swap.py",
    ),
    Judged(
        "api-servers-agree", "flags that all API servers share", "those of the other API servers", "equal",
        "a cluster gives two answers",
        "kubernetes.io/docs/setup/production-environment/tools/kubeadm/high-availability",
        "roles/control_plane_flags/dangers.py (MUST_BE_EQUAL)",
    ),
)  # fmt: skip


# ---- what daytwo itself goes through


@dataclass(frozen=True)
class Way:
    """Settings (a pattern for the whole name) by which the API reaches kubelets, or lets somebody reach them."""

    owner: str
    settings: str
    why: str


WAYS = (
    Way(API, "kubelet-certificate-authority", "which certificates of kubelets the API server trusts"),
    Way(API, "kubelet-client-certificate|kubelet-client-key", "who the API server is for kubelets"),
    Way(API, "kubelet-preferred-address-types|kubelet-port|kubelet-timeout|kubelet-https", "where and how it looks for kubelets"),
    Way(API, "egress-selector-config-file", "the way of its connections"),
    Way(
        API, "authorization-.*|authentication-.*|anonymous-auth|client-ca-file|oidc-.*|token-auth-file",
        "whom the API knows and allows: kubelets ask it about each request",
    ),
    Way(API, "requestheader-.*|proxy-client-.*|enable-aggregator-routing", "the way to extension API servers, such as metrics"),
    Way(
        API, "tls-.*|service-account-.*|api-audiences|runtime-config|(enable|disable)-admission-plugins",
        "what kubelets' questions to the API need",
    ),
    Way(KUBELET, r"authentication(\..*)?|authorization(\..*)?", "who may ask a kubelet"),
    Way(KUBELET, r"tls.*|serverTLSBootstrap", "what a kubelet serves"),
    Way(KUBELET, "address|port|enableServer|enableDebuggingHandlers", "where a kubelet answers, and what"),
)  # fmt: skip


def is_way(owner: str, name: str) -> bool:
    """Whether a change of this flag or field needs as a proof that kubelets still answer through the API."""
    return any(one.owner == owner and re.fullmatch(one.settings, name) for one in WAYS)
