"""Values for every host of every inventory in this folder (the lab takes what it needs from --data)."""

# ---- how to get there

# Who logs in, and with which key; without one, keys of the agent and of ~/.ssh are tried.
# ssh_user = "ops"
# ssh_key = "~/.ssh/ops_ed25519"

# Through a jump host: pyinfra reads ~/.ssh/config, or the file that is named here, and goes by HostName, User, Port, IdentityFile,
# UserKnownHostsFile, ProxyJump and ProxyCommand of it. It looks there for ssh_hostname, where a host has one, and not for its name:
#     Host bastion
#         HostName bastion.example.net
#         User ops
#     Host 10.20.0.*
#         ProxyJump bastion
# ssh_config_file = "inventories/ssh_config"

# A host's key is judged as your own ssh would, by ssh_config and known_hosts, yours and the system's (SECURITY.md). Where they say
# nothing, you are asked about a new one at the terminal, and without a terminal it is refused: connect to the host once with ssh.
# What is said here counts before ssh_config: "yes" refuses a key that is not known, "accept-new" notes it.
# ssh_strict_host_key_checking = "yes"

# How to become root. Where sudo wants a password, pyinfra asks for it at the terminal, host by host; with --same-sudo-password it asks
# once, before it connects (--use-sudo-password does nothing in pyinfra 3.10). Where nobody is there to be asked, such as in CI, have it in
# the environment, and not in this file.
# _sudo = True
# from os import environ
# _sudo_password = environ["SUDO_PASSWORD"]

# ---- what is to hold

# Feature gates as they should be: True, False, or "absent" to take a gate out of the node's files again.
# A gate that is not named here is left alone.
# feature_gates = {"HPAScaleToZero": True}

# Only some components of each node, and not those that read the gate: kubelet, kube-apiserver, kube-controller-manager, kube-scheduler.
# components = ["kubelet"]

# Fields of every kubelet's configuration (docs/kubelet-config.md); "absent" takes one out of the node's files again.
# kubelet_config = {"containerLogMaxSize": "50Mi", "containerLogMaxFiles": 3}

# The cluster's PriorityClasses (docs/priority-classes.md): here and nowhere else, since they are the same for all hosts. One that
# daytwo made and that is taken out here is listed, and removed only with --data prune=true.
# priority_classes = {
#     "batch": {"value": -10, "preemptionPolicy": "Never", "description": "what can wait"},
#     "web": {"value": 1000, "description": "what customers see", "labels": {"team": "shop"}},
#     "standard": {"value": 100, "globalDefault": True},
# }
# Workloads and the class that their pods should have: NAMESPACE/KIND/NAME, kinds deployment, statefulset and daemonset.
# workloads = {"shop/deployment/web": "web", "shop/statefulset/db": "web", "logs/daemonset/collector": "batch"}

# kubeadm's ConfigMaps are left alone (docs/lasting.md): the next `kubeadm upgrade` then takes out again what daytwo sets.
# persist = False

# ---- at what pace; the same for all hosts of a run

# After the canary so many workers at a time, as a number or a percentage of those that change. The control plane goes one by one.
# max_unavailable = "25%"

# For so many seconds the canary is watched, changed and not yet confirmed.
# soak = 120

# So many seconds after its first touch a node puts back by itself what was not confirmed. The defaults suit nodes whose kubelet and
# API server come up within a minute.
# confirm_timeout = 600

# ---- yours

# Keys for deploys of your own: they begin with x_ or _, or are named here.
# own_keys = ["rack", "dns_*"]
# x_contact = "ops@example.net"

# Consents are for one run, by --data, and not for this file: allow_evictions, move_flags, replace, prune, force and the like.
