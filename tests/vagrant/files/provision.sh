#!/bin/sh
# Makes a node of the cluster out of a machine; run by Vagrant as root. Does nothing on one that is a node already.
#
# NAME, ROLE (control-plane, worker), ADDRESS, CONTROL_PLANE (its address), PODS (this node's), VERSION (of Kubernetes), PATIENCE:
# how many times longer than on an ordinary machine everything may take.
set -eu
# Machines of this network only, which are thrown away: a token that everybody knows.
token=daytwo.throwawaymachine
# There in a box that was made on the spot: all that is needed is in it.
baked=/etc/daytwo-baked
mark=/etc/kubernetes/daytwo-node
export DEBIAN_FRONTEND=noninteractive

say() { echo "$NAME: $* ($(cut -d ' ' -f 1 /proc/uptime) s since boot)"; }
patient() { awk "BEGIN { printf \"%d\", $1 * $PATIENCE }"; }

[ ! -e "$mark" ] || { say "is a node already"; exit 0; }

# From the packages that the project itself publishes for all distributions with apt.
install_packages() {
    printf 'overlay\nbr_netfilter\n' >/etc/modules-load.d/kubernetes.conf
    printf 'net.ipv4.ip_forward = 1\nnet.bridge.bridge-nf-call-iptables = 1\n' >/etc/sysctl.d/90-kubernetes.conf
    minor=${VERSION%.*}
    apt-get update -qq
    apt-get install -y -qq ca-certificates curl gpg containerd containernetworking-plugins conntrack socat iptables
    curl -fsSL "https://pkgs.k8s.io/core:/stable:/v$minor/deb/Release.key" | gpg --dearmor --yes -o /usr/share/keyrings/kubernetes.gpg
    echo "deb [signed-by=/usr/share/keyrings/kubernetes.gpg] https://pkgs.k8s.io/core:/stable:/v$minor/deb/ /" \
        >/etc/apt/sources.list.d/kubernetes.list
    apt-get update -qq
    apt-get install -y -qq "kubeadm=$VERSION-*" "kubelet=$VERSION-*" "kubectl=$VERSION-*"
    containerd config default |
        sed -e 's/SystemdCgroup = false/SystemdCgroup = true/' -e 's|bin_dir = ".*"|bin_dir = "/usr/lib/cni"|' >/etc/containerd/config.toml
    systemctl restart containerd
    swapoff -a
    sed -i '/ swap /d' /etc/fstab
}

# Each node has its own pods on a bridge; the way to the other's goes through its address.
network() {
    mkdir -p /etc/cni/net.d
    cat >/etc/cni/net.d/10-daytwo.conflist <<CNI
{
  "cniVersion": "0.4.0",
  "name": "daytwo",
  "plugins": [
    {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
     "ipam": {"type": "host-local", "ranges": [[{"subnet": "$PODS"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
CNI
    # A machine has a second leg, for Vagrant, which is the same on all of them with VirtualBox.
    echo "KUBELET_EXTRA_ARGS=--node-ip=$ADDRESS" >/etc/default/kubelet
}

# kubeadm's liveness probes end a component that is only slow.
patches() {
    mkdir -p /root/patches
    for component in kube-apiserver kube-controller-manager kube-scheduler etcd; do
        cat >"/root/patches/$component+strategic.yaml" <<PATCH
spec:
  containers:
  - name: $component
    livenessProbe: {timeoutSeconds: $(patient 15), failureThreshold: $(patient 8)}
PATCH
    done
}

control_plane() {
    patches
    if [ -e "$baked" ]; then repository=registry.local etcd=lab skip=preflight,addon; else repository=registry.k8s.io etcd='' skip=; fi
    # Leases and elections are by the wall clock, and kubeadm's own patience ends after four minutes.
    cat >/root/kubeadm.yaml <<KUBEADM
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
bootstrapTokens:
- token: $token
  ttl: 0s
localAPIEndpoint:
  advertiseAddress: $ADDRESS
nodeRegistration:
  name: $NAME
  criSocket: unix:///run/containerd/containerd.sock
  imagePullPolicy: IfNotPresent
patches:
  directory: /root/patches
timeouts:
  controlPlaneComponentHealthCheck: $(patient 240)s
  kubeletHealthCheck: $(patient 240)s
  kubernetesAPICall: $(patient 240)s
  etcdAPICall: $(patient 120)s
  discovery: $(patient 300)s
  tlsBootstrap: $(patient 300)s
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v$VERSION
# An API server opens hundreds of connections to etcd at its start; RSA makes each of them dear.
encryptionAlgorithm: ECDSA-P256
imageRepository: $repository
controlPlaneEndpoint: $ADDRESS:6443
networking:
  podSubnet: 10.244.0.0/16
etcd:
  local:
    imageTag: "$etcd"
    extraArgs:
    - {name: heartbeat-interval, value: "$(patient 100)"}
    - {name: election-timeout, value: "$(patient 1000)"}
controllerManager:
  extraArgs:
  - {name: leader-elect-lease-duration, value: $(patient 15)s}
  - {name: leader-elect-renew-deadline, value: $(patient 10)s}
  - {name: leader-elect-retry-period, value: $(patient 2)s}
scheduler:
  extraArgs:
  - {name: leader-elect-lease-duration, value: $(patient 15)s}
  - {name: leader-elect-renew-deadline, value: $(patient 10)s}
  - {name: leader-elect-retry-period, value: $(patient 2)s}
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: systemd
failSwapOn: false
KUBEADM
    say "kubeadm init"
    kubeadm init --config /root/kubeadm.yaml --skip-phases="$skip" >/root/kubeadm.log 2>&1 || { tail -n 30 /root/kubeadm.log; exit 1; }
}

worker() {
    cat >/root/kubeadm.yaml <<KUBEADM
apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery:
  bootstrapToken:
    token: $token
    apiServerEndpoint: $CONTROL_PLANE:6443
    unsafeSkipCAVerification: true
nodeRegistration:
  name: $NAME
  criSocket: unix:///run/containerd/containerd.sock
timeouts:
  kubeletHealthCheck: $(patient 240)s
  kubernetesAPICall: $(patient 240)s
  discovery: $(patient 300)s
  tlsBootstrap: $(patient 300)s
KUBEADM
    say "waits for the control plane"
    end=$(($(date +%s) + $(patient 600)))
    # Readable by anybody once cluster-info may be read, which is the last thing but one that kubeadm init does.
    until curl --silent --insecure --fail --max-time 30 -o /dev/null \
        "https://$CONTROL_PLANE:6443/api/v1/namespaces/kube-public/configmaps/cluster-info"; do
        [ "$(date +%s)" -lt "$end" ] || { say "there is no control plane at $CONTROL_PLANE"; exit 1; }
        sleep 5
    done
    skip=''
    [ ! -e "$baked" ] || skip=preflight
    say "kubeadm join"
    kubeadm join --config /root/kubeadm.yaml --skip-phases="$skip" >/root/kubeadm.log 2>&1 || { tail -n 30 /root/kubeadm.log; exit 1; }
}

say "begins"
if [ -e /etc/kubernetes/kubelet.conf ] || [ -e /etc/kubernetes/manifests/etcd.yaml ]; then
    say "was left half way; kubeadm reset"
    pkill -x kubeadm || true
    kubeadm reset --force >/root/reset.log 2>&1 || { tail -n 10 /root/reset.log; exit 1; }
fi
[ -e "$baked" ] || install_packages
systemctl enable --quiet kubelet
modprobe -a overlay br_netfilter
sysctl -q --system
network
if [ "$ROLE" = control-plane ]; then control_plane; else worker; fi
touch "$mark"
say "is a node"
