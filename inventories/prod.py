"""An example of a production inventory: copy it, put your own hosts in.

    pyinfra inventories/prod.py deploys/status.py -y               what is there (changes nothing)
    pyinfra inventories/prod.py deploys/checks.py -y               is all well, and as this inventory wants it? (changes nothing)
    pyinfra inventories/prod.py deploys/audit.py                   what is wrong with it (changes nothing)
    pyinfra inventories/prod.py deploys/eviction_order.py -y       who goes first when a node runs short (changes nothing)
    pyinfra inventories/prod.py deploys/feature_gates.py --dry     the plan (changes nothing)
    pyinfra inventories/prod.py deploys/feature_gates.py -y        the change, node by node, proven or put back

deploys/eviction.py, deploys/kubelet_config.py and deploys/priority_classes.py are run in the same way.

What is to hold is written down as data, in four places; where two have the same key, the one further down wins, with its whole value:

    group_data/all.py               for every host
    group_data/control_plane.py     for the hosts of that group, and so on for each group
    here, with a host               for this host
    --data KEY=VALUE                for this run

Each has examples, commented out. docs/reference/data.md lists all keys; one that no deploy reads is refused, with what was meant.
"""

# Each list is a group. daytwo looks at the group `control_plane` even when --limit leaves it out, and keeps the lock of a run on its
# first host. A host is a name, or a name and its own data. The name is what daytwo shows, and what --limit and `only` take; it is where
# pyinfra connects to, too, unless ssh_hostname says otherwise.
control_plane = [
    ("cp1.example.net", {"ssh_hostname": "10.20.0.11"}),
    ("cp2.example.net", {"ssh_hostname": "10.20.0.12"}),
    ("cp3.example.net", {"ssh_hostname": "10.20.0.13"}),
]

# The first worker that changes is the canary: it is proven, and watched for `soak` seconds, before the next one is touched. So have
# first the one whose trouble costs least.
workers = [
    ("w1.example.net", {"ssh_hostname": "10.20.0.21"}),
    ("w2.example.net", {"ssh_hostname": "10.20.0.22"}),
    # A host's own value takes the place of the group's whole value, not of single gates (thresholds, fields) in it.
    ("w3.example.net", {"ssh_hostname": "10.20.0.23", "feature_gates": {"NodeSwap": True}}),
]

# A host may be in more groups than one. This one is for group_data/canaries.py, and for `--limit canaries`.
canaries = ["w1.example.net"]
