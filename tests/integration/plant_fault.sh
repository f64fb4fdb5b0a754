#!/bin/sh
# Plants a fault on a node, or mends it: `sh plant_fault.sh FAULT`, `sh plant_fault.sh FAULT mend`. Knows nothing of daytwo but where its records lie.
set -eu
fault=$1 mend=${2-}
aside=/root/planted
config=/var/lib/kubelet/config.yaml
[ ! -f /etc/kubernetes-node/kubelet.yaml ] || config=/etc/kubernetes-node/kubelet.yaml
manifests=$(sed -n 's/^staticPodPath: *"\{0,1\}\([^" ]*\).*/\1/p' "$config" 2>/dev/null || true)
environment=/etc/default/kubelet

kubelet() { systemctl show kubelet.service --property=MainPID --value; }
of_pod() { pidof "$1" | cut -d ' ' -f 1; }

# keep FILE, give FILE back: as it was, or gone
keep() {
    mkdir -p "$aside"
    if [ -e "$1" ]; then cp -a "$1" "$aside/${1##*/}"; else rm -f "$aside/${1##*/}"; fi
}
give_back() { if [ -e "$aside/${1##*/}" ]; then mv -f "$aside/${1##*/}" "$1"; else rm -f "$1"; fi; }

# pod NAME CONTAINER: a manifest of a pod whose image nobody has
pod() {
    printf 'apiVersion: v1\nkind: Pod\nmetadata:\n  name: %s\n  namespace: kube-system\nspec:\n  containers:\n' "$1"
    printf '  - command:\n    - %s\n    name: %s\n    image: localhost/nobody/has:this\n    imagePullPolicy: Never\n' "$2" "$2"
}

case $fault-$mend in
stopped-) systemctl stop kubelet ;;
stopped-mend) systemctl start kubelet ;;
disabled-) systemctl disable --quiet kubelet ;;
disabled-mend) systemctl enable --quiet kubelet ;;
looping-)
    keep "$environment"
    echo 'KUBELET_EXTRA_ARGS=--no-such-flag' >"$environment"
    systemctl restart kubelet || true
    ;;
looping-mend)
    give_back "$environment"
    systemctl restart kubelet
    ;;
frozen-) kill -STOP "$(kubelet)" ;;
frozen-mend) kill -CONT "$(kubelet)" ;;
edited-unit-)
    mkdir -p /etc/systemd/system/kubelet.service.d
    printf '[Service]\nNice=1\n' >/etc/systemd/system/kubelet.service.d/99-planted.conf
    ;;
edited-unit-mend)
    rm -f /etc/systemd/system/kubelet.service.d/99-planted.conf
    rmdir /etc/systemd/system/kubelet.service.d 2>/dev/null || true
    systemctl daemon-reload
    ;;
edited-environment-)
    keep "$environment"
    echo 'KUBELET_EXTRA_ARGS=--v=5' >"$environment"
    ;;
edited-environment-mend) give_back "$environment" ;;
edited-configuration-)
    keep "$config"
    printf 'maxPods: 77\n' >>"$config"
    ;;
edited-configuration-mend) give_back "$config" ;;
lost-configuration-) keep "$config" && rm -f "$config" ;;
lost-configuration-mend) give_back "$config" ;;
replaced-binary-)
    binary=$(readlink "/proc/$(kubelet)/exe")
    cp -a "$binary" "$binary.new"
    mv -f "$binary.new" "$binary"
    ;;
replaced-binary-mend) systemctl restart kubelet ;;
other-gate-)
    keep "$config"
    printf 'featureGates:\n  HPAScaleToZero: true\n' >>"$config"
    systemctl restart kubelet
    ;;
other-field-)
    keep "$config"
    printf 'maxPods: 77\n' >>"$config"
    systemctl restart kubelet
    ;;
other-threshold-)
    keep "$config"
    sed -i 's/50Mi/49Mi/' "$config"
    systemctl restart kubelet
    ;;
other-gate-mend | other-field-mend | other-threshold-mend)
    give_back "$config"
    systemctl restart kubelet
    ;;
no-network-)
    mkdir -p "$aside/cni"
    mv /etc/cni/net.d/* "$aside/cni/"
    ;;
# containerd reads its network anew when a file there is written, not when one is moved to it.
no-network-mend) cp "$aside"/cni/* /etc/cni/net.d/ ;;
stray-) echo 'remember the milk' >"$manifests/note.txt~" ;;
stray-mend) rm -f "$manifests/note.txt~" ;;
twins-)
    pod planted-web web >"$manifests/web.yaml"
    pod planted-web web >"$manifests/web-old.yaml"
    ;;
twins-mend) rm -f "$manifests/web.yaml" "$manifests/web-old.yaml" ;;
no-process-) pod planted-scheduler kube-scheduler >"$manifests/kube-scheduler.yaml" ;;
no-process-mend) rm -f "$manifests/kube-scheduler.yaml" ;;
frozen-scheduler-) kill -STOP "$(of_pod kube-scheduler)" ;;
frozen-scheduler-mend) kill -CONT "$(of_pod kube-scheduler)" ;;
frozen-apiserver-) kill -STOP "$(of_pod kube-apiserver)" ;;
frozen-apiserver-mend) kill -CONT "$(of_pod kube-apiserver)" ;;
open-change-)
    mkdir -p /var/lib/daytwo/active/planted /var/lib/daytwo/changes/planted
    echo state=revert-failed >/var/lib/daytwo/changes/planted/state
    ;;
open-change-mend)
    rm -rf /var/lib/daytwo/active/planted /var/lib/daytwo/changes/planted
    ;;
lost-class-) kubectl --kubeconfig=/etc/kubernetes/admin.conf delete priorityclass planted-web ;;
lost-class-mend) kubectl --kubeconfig=/etc/kubernetes/admin.conf create priorityclass planted-web --value=1000 ;;
*) echo "no such fault: $fault $mend" >&2 && exit 2 ;;
esac
