#!/bin/sh
# Process 1 of a simulated host starts this: the kubelet, the static pods of a control-plane node, and sshd.
name=$1
mkdir -p /run/sshd /run/bench/units
chmod 1777 /tmp
systemctl start kubelet.service
for manifest in /etc/kubernetes/manifests/*.yaml; do
    [ -f "$manifest" ] || continue
    component=$(basename "$manifest" .yaml)
    uid=$(cat "$manifest.uid")
    mkdir -p "/var/log/pods/kube-system_$component-${name}_$uid/$component"
    : >"/var/log/pods/kube-system_$component-${name}_$uid/$component/0.log"
    # Nobody else's words: `command` and nothing else of these manifests has this form.
    set --
    while IFS= read -r line; do
        case $line in '    - --'* | "    - $component") set -- "$@" "${line#    - }" ;; esac
    done <"$manifest"
    setsid "$@" </dev/null >/dev/null 2>&1 &
    # Where a kubelet puts a static pod: the file that the kernel would show comes from here, no cgroup is made.
    slice=kubepods-burstable-pod$uid.slice
    echo "0::/kubepods.slice/kubepods-burstable.slice/$slice/cri-containerd-$uid$uid.scope" >"/run/bench/cgroup.$component"
    sleep 0.05
    mount --bind "/run/bench/cgroup.$component" "/proc/$!/cgroup"
done
rm -f /etc/kubernetes/manifests/*.uid
exec /usr/sbin/sshd -D -E /run/bench/sshd.log
