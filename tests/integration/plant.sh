#!/bin/sh
# Plants faults on one node of the lab, as hands and tools leave them, and tells of each in a line of its own:
#     planted|KIND|SEVERITY|FILE|LINE|NAME        (LINE: -, the whole file is meant; NAME: -, none)
# plant.sh HOST: cp1, w1 or w2. Knows nothing of daytwo but the directory in which it keeps its changes.
set -eu

say() { # KIND SEVERITY FILE TEXT-IN-LINE NAME
    line=-
    [ "$4" = - ] || line=$(grep -nF -- "$4" "$3" | head -n 1 | cut -d : -f 1)
    printf 'planted|%s|%s|%s|%s|%s\n' "$1" "$2" "$3" "$line" "$5"
}

pod() { # NAME: a pod that never starts
    printf 'apiVersion: v1\nkind: Pod\nmetadata:\n  namespace: default\n  name: %s\nspec:\n  containers:\n  - name: app\n    image: registry.invalid/none:1\n    imagePullPolicy: Never\n' "$1"
}

new_kubelet() { # restarts it, and waits until it is well
    systemctl daemon-reload
    systemctl restart kubelet
    until curl -fs http://127.0.0.1:10248/healthz >/dev/null; do sleep 0.2; done
}

change() { # ID STATE: a change of daytwo's that waits for somebody
    mkdir -p "/var/lib/daytwo/changes/$1" "/var/lib/daytwo/active/$1"
    printf 'state=%s\nboot=%s\ndeadline=99999999\n' "$2" "$(cat /proc/sys/kernel/random/boot_id)" >"/var/lib/daytwo/changes/$1/state"
    printf 'run=r20260101-000000-aaaa\nwho=somebody\ncommand=deploys/feature_gates.py\n' >"/var/lib/daytwo/active/$1/holder"
}

w1() {
    config=/var/lib/kubelet/config.yaml env=/var/lib/kubelet/kubeadm-flags.env units=/etc/systemd/system/kubelet.service.d manifests=/etc/kubernetes/manifests
    cat >>$config <<'.'
maxPods: 99
evictionHart:
  memory.available: 1Gi
featureGates:
  InPlacePodVerticalScaling: true
  KubeletRegistrationGetOnExistsOnly: false
  PreventStaticPodAPIReferences: false
  HostnameOverride: false
.
    sed -i 's/"$/ --log-cadvisor-usage=false"/' $env
    mkdir -p $units
    printf '[Service]\nNice=-1\n' | tee $units/15-nice.conf >$units/15-nice-old.conf
    new_kubelet
    printf 'containerLogMaxSize: 12Mi\n' >>$config
    printf '[Service]\nLimitNOFILE=1000000\n' >$units/30-late.conf
    mkdir -p $manifests
    pod web >$manifests/web.yaml
    pod web >$manifests/web-two.yaml
    pod batch >$manifests/batch.yaml.bak
    printf 'remember the milk\n' >$manifests/notes.rpmsave
    mkdir $manifests/old
    pod hidden >$manifests/.hidden.yaml
    change r20260101-000000-aaaa-w1-kubelet applied

    say drift warning $config 'maxPods: 99' maxPods
    say sibling warning $config 'maxPods: 99' maxPods
    say split-brain warning $config 'maxPods: 99' maxPods
    say split-brain warning $config HostnameOverride HostnameOverride
    say field warning $config evictionHart evictionHart
    say gate note $config InPlacePodVerticalScaling InPlacePodVerticalScaling
    say gate warning $config KubeletRegistrationGetOnExistsOnly KubeletRegistrationGetOnExistsOnly
    say target-version critical $config PreventStaticPodAPIReferences PreventStaticPodAPIReferences
    say target-version critical $config HostnameOverride HostnameOverride
    say target-version critical $env log-cadvisor-usage log-cadvisor-usage
    say backup critical $units/15-nice-old.conf Nice -
    say backup critical $manifests/batch.yaml.bak 'name: batch' -
    say backup warning $manifests/notes.rpmsave - -
    say stray critical $manifests/web-two.yaml 'name: web' -
    say stray note $manifests/old - -
    say stray note $manifests/.hidden.yaml - -
    say stale warning $config 'containerLogMaxSize: 12Mi' containerLogMaxSize
    say daemon-reload critical $units/30-late.conf LimitNOFILE -
    say in-flight warning /var/lib/daytwo/active/r20260101-000000-aaaa-w1-kubelet - -
}

w2() {
    config=/etc/kubernetes-node/kubelet.yaml env=/etc/default/kubelet unit=/etc/systemd/system/kubelet.service
    static=/etc/kubernetes-node/static more=/etc/kubernetes-node/conf.d
    printf 'featureGates:\n  HPAScaleToZero: false\nmaxPodz: 7\n' >>$config
    mkdir -p $more
    printf 'apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncontainerLogMaxFiles: 4\n' >$more/10-own.conf
    printf 'apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncontainerLogMaxFiles: 6\n' >$more/10-own.bak.conf
    printf 'remember the milk\n' >$more/20-note.yaml
    gates=HPAScaleToZero=true,SidecarContainers=true,DisableCPUQuotaWithExclusiveCPUs=false
    cat >$env <<.
# what operators write
KUBELET_EXTRA_ARGS="--feature-gates=$gates --config-dir=$more \\
  --eviction-hard=memory.available<60Mi,nodefs.available<1%,imagefs.available<1% \\
  --global-housekeeping-interval=1m0s"
.
    new_kubelet
    sed -i 's/interval=1m0s/& --max-open-files=123456/' $env
    printf '# looked at\n' >>$unit
    pod job >$static/job.yaml
    pod job >$static/job.yaml.bak
    change r20260101-000000-bbbb-w2-kubelet revert-failed

    say drift warning $env feature-gates HPAScaleToZero
    say drift warning $env eviction-hard evictionHard.memory.available
    say sibling warning $env feature-gates HPAScaleToZero
    say sibling warning $more/10-own.conf containerLogMaxFiles containerLogMaxFiles
    say flag-beats-file warning $config 'HPAScaleToZero: false' HPAScaleToZero
    say flag-beats-file warning $config memory.available evictionHard.memory.available
    say field warning $config maxPodz maxPodz
    say gate note $env feature-gates SidecarContainers
    say gate warning $env feature-gates DisableCPUQuotaWithExclusiveCPUs
    say target-version critical $env feature-gates SidecarContainers
    say target-version critical $env feature-gates DisableCPUQuotaWithExclusiveCPUs
    say target-version critical $env global-housekeeping-interval global-housekeeping-interval
    say backup critical $more/10-own.bak.conf containerLogMaxFiles -
    say backup critical $static/job.yaml.bak 'name: job' -
    say stray note $more/20-note.yaml - -
    say stale warning $env max-open-files max-open-files
    say daemon-reload critical $unit Description -
    say in-flight critical /var/lib/daytwo/active/r20260101-000000-bbbb-w2-kubelet - -
}

cp1() {
    config=/var/lib/kubelet/config.yaml
    export KUBECONFIG=/etc/kubernetes/admin.conf
    folder=$(mktemp -d)
    # The kubelet is not started anew: it would not come back.
    printf 'featureGates:\n  InPlacePodVerticalScaling: false\n  NoSuchGate: true\n' >>$config
    kubectl get configmap -n kube-system kubeadm-config -o 'jsonpath={.data.ClusterConfiguration}' >"$folder/ClusterConfiguration"
    argument='  - name: feature-gates\n    value: WatchCacheInitializationPostStartHook=false'
    if grep -A 1 '^apiServer:' "$folder/ClusterConfiguration" | grep -q '^  extraArgs:'; then
        sed -i "/^apiServer:/{n;s/\$/\n$argument/}" "$folder/ClusterConfiguration"
    else
        sed -i "s/^apiServer:.*/apiServer:\n  extraArgs:\n$argument/" "$folder/ClusterConfiguration"
    fi
    kubectl get configmap -n kube-system kubelet-config -o 'jsonpath={.data.kubelet}' >"$folder/kubelet"
    printf 'featureGates:\n  RelaxedDNSSearchValidation: true\n' >>"$folder/kubelet"
    for map in kubeadm-config:ClusterConfiguration kubelet-config:kubelet; do
        kubectl create configmap -n kube-system "${map%:*}" --from-file="$folder/${map#*:}" --dry-run=client -o yaml | kubectl replace -f - >/dev/null
    done

    say gate critical $config InPlacePodVerticalScaling InPlacePodVerticalScaling
    say gate critical $config NoSuchGate NoSuchGate
    say stale warning $config InPlacePodVerticalScaling InPlacePodVerticalScaling
    for kind in 'split-brain|warning' 'target-version|critical'; do
        printf 'planted|%s|configmap kube-system/kubeadm-config ClusterConfiguration|%s|WatchCacheInitializationPostStartHook\n' "$kind" \
            "$(grep -n 'name: feature-gates' "$folder/ClusterConfiguration" | cut -d : -f 1)"
        printf 'planted|%s|configmap kube-system/kubelet-config kubelet|%s|RelaxedDNSSearchValidation\n' "$kind" \
            "$(grep -n RelaxedDNSSearchValidation "$folder/kubelet" | cut -d : -f 1)"
    done
    rm -rf "$folder"
}

"$1"
