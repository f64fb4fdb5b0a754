"""An example of a production inventory: copy it, and enter your own hosts.

    pyinfra inventories/prod.py deploys/status.py -y               the current state (changes nothing)
    pyinfra inventories/prod.py deploys/checks.py -y               is every node healthy, and as desired? (changes nothing)
    pyinfra inventories/prod.py deploys/audit.py                   what is wrong with it (changes nothing)
    pyinfra inventories/prod.py deploys/eviction_order.py -y       the eviction order of each node (changes nothing)
    pyinfra inventories/prod.py deploys/feature_gates.py --dry     the plan (changes nothing)
    pyinfra inventories/prod.py deploys/feature_gates.py -y        the change, node by node, proven or reverted

Run deploys/eviction.py, deploys/kubelet_config.py and deploys/priority_classes.py in the same way.

The desired state is data in four places. If two of them have the same key, the lower one wins, with its whole value:

    group_data/all.py               for every host
    group_data/control_plane.py     for the hosts of that group; likewise for each group
    here, with a host               for this host
    --data KEY=VALUE                for this run

Each has examples, commented out. docs/reference/data.md lists all keys. daytwo refuses a key that no deploy reads, and
suggests the right one.
"""

# Each list is a group. daytwo reads the group `control_plane` even if --limit excludes it, and keeps the lock of a run on its first host.
# A host is a name, or a name and its own data. daytwo shows the name, and --limit and `nodes` accept it. pyinfra connects to it, unless
# ssh_hostname has another address.
control_plane = [
    ("cp1.example.net", {"ssh_hostname": "10.20.0.11"}),
    ("cp2.example.net", {"ssh_hostname": "10.20.0.12"}),
    ("cp3.example.net", {"ssh_hostname": "10.20.0.13"}),
]

# The first worker that changes is the canary: daytwo proves it, and watches it for `soak` seconds, before it touches the next one. So put
# the least important worker first.
workers = [
    ("w1.example.net", {"ssh_hostname": "10.20.0.21"}),
    ("w2.example.net", {"ssh_hostname": "10.20.0.22"}),
    # A host's own value replaces the group's whole value, not single gates (thresholds, fields) in it.
    ("w3.example.net", {"ssh_hostname": "10.20.0.23", "feature_gates": {"NodeSwap": True}}),
]

# A host may be in several groups. This one is for group_data/canaries.py, and for `--limit canaries`.
canaries = ["w1.example.net"]
