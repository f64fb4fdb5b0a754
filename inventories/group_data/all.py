"""Values for every host of every inventory in this folder (the lab gets its values from --data)."""

# ---- how to connect

# The login user, and the key; without a key pyinfra tries those of the agent and of ~/.ssh.
# ssh_user = "ops"
# ssh_key = "~/.ssh/ops_ed25519"

# Through a jump host: pyinfra reads ~/.ssh/config, or the file named here, and uses its HostName, User, Port, IdentityFile,
# UserKnownHostsFile, ProxyJump and ProxyCommand. If a host has an ssh_hostname, pyinfra looks up that, not the host's name:
#     Host bastion
#         HostName bastion.example.net
#         User ops
#     Host 10.20.0.*
#         ProxyJump bastion
# ssh_config_file = "inventories/ssh_config"

# daytwo checks a host's key as your own ssh would, by your and the system's ssh_config and known_hosts (SECURITY.md). If they do not
# decide, it asks you about a new key at the terminal, and refuses it without a terminal: connect to the host once with ssh.
# This overrides ssh_config: "yes" refuses an unknown key, "accept-new" adds it to known_hosts.
# ssh_strict_host_key_checking = "yes"

# How to become root. If sudo needs a password, pyinfra asks for it at the terminal, host by host; with --same-sudo-password it asks once,
# before it connects (--use-sudo-password does nothing in pyinfra 3.10). Without a terminal (CI), put the password into the environment,
# not into this file.
# _sudo = True
# from os import environ
# _sudo_password = environ["SUDO_PASSWORD"]

# ---- the desired state

# Desired feature gates: True, False, or "absent" to remove a gate from the node's files.
# A gate that is not named here stays as it is.
# feature_gates = {"HPAScaleToZero": True}

# Only these components, instead of those that read the gate: kubelet, kube-apiserver, kube-controller-manager, kube-scheduler.
# components = ["kubelet"]

# Fields of every kubelet's configuration (docs/kubelet-config.md); "absent" removes one from the node's files.
# kubelet_config = {"containerLogMaxSize": "50Mi", "containerLogMaxFiles": 3}

# The cluster's PriorityClasses (docs/priority-classes.md): only here, since they are the same for all hosts. If you drop one that daytwo
# created, daytwo lists it, and removes it only with --data prune=true.
# priority_classes = {
#     "batch": {"value": -10, "preemptionPolicy": "Never", "description": "what can wait"},
#     "web": {"value": 1000, "description": "what customers see", "labels": {"team": "shop"}},
#     "standard": {"value": 100, "globalDefault": True},
# }
# Workloads and the class of their pods: NAMESPACE/KIND/NAME, kinds deployment, statefulset and daemonset.
# workloads = {"shop/deployment/web": "web", "shop/statefulset/db": "web", "logs/daemonset/collector": "batch"}

# Leave kubeadm's ConfigMaps alone (docs/lasting.md): the next `kubeadm upgrade` then removes what daytwo sets.
# persist = False

# ---- the pace; the same for all hosts of a run

# How many workers change at a time after the canary: a number, or a percentage of those that change. The control plane goes one by one.
# max_unavailable = "25%"

# How many seconds daytwo watches the changed canary before it confirms.
# soak = 120

# A node reverts an unconfirmed change by itself, this many seconds after the first touch. The default suits nodes whose kubelet and API
# server start within a minute.
# confirm_timeout = 600

# ---- yours

# Keys for your own deploys: they begin with x_ or _, or are named here.
# own_keys = ["rack", "dns_*"]
# x_contact = "ops@example.net"

# Consents are for one run, by --data, and not for this file: allow_evictions, move_flags, replace, prune, force and others.
