"""An example of a production inventory: copy it, put your own hosts in.

    pyinfra inventories/prod.py deploys/status.py -y               what is there (changes nothing)
    pyinfra inventories/prod.py deploys/audit.py                   what is wrong with it (changes nothing)
    pyinfra inventories/prod.py deploys/eviction_order.py -y       who goes first when a node runs short (changes nothing)
    pyinfra inventories/prod.py deploys/feature_gates.py --dry     the plan (changes nothing)
    pyinfra inventories/prod.py deploys/feature_gates.py -y        the change, node by node, proven or put back

deploys/eviction.py, deploys/kubelet_config.py and deploys/priority_classes.py are run in the same way.

Each list is a group. daytwo looks at the group `control_plane` even when --limit leaves it out. Values for a group lie in
group_data/GROUP.py beside this file, for all hosts in group_data/all.py; what stands here with a host goes before both.
Both files have examples of every kind of value, commented out.
"""

control_plane = [
    ("cp1.example.net", {"ssh_hostname": "10.20.0.11"}),
    ("cp2.example.net", {"ssh_hostname": "10.20.0.12"}),
    ("cp3.example.net", {"ssh_hostname": "10.20.0.13"}),
]

workers = [
    ("w1.example.net", {"ssh_hostname": "10.20.0.21"}),
    ("w2.example.net", {"ssh_hostname": "10.20.0.22"}),
    # A host's own value takes the place of the group's whole value, not of single gates (thresholds, fields) in it.
    ("w3.example.net", {"ssh_hostname": "10.20.0.23", "feature_gates": {"NodeSwap": True}}),
]
