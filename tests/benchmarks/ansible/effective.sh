#!/bin/sh
# /configz and the gates of /metrics of each node, through the API of this control-plane node.
pki=/etc/kubernetes/pki
server=$(sed -n 's/^ *server: //p' /etc/kubernetes/admin.conf)
for node; do
    for what in configz metrics; do
        curl --silent --show-error --fail --cacert $pki/ca.crt --cert $pki/apiserver-kubelet-client.crt --key $pki/apiserver-kubelet-client.key \
            "$server/api/v1/nodes/$node/proxy/$what" || exit 1
        echo
    done | sed -n "/^{\"kubeletconfig/p; s/^kubernetes_feature_enabled{name=\"\([A-Za-z]*\)\".*} \([01]\)/$node \1 \2/p"
done
