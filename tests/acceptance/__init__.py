"""The checks of deploys/checks.py as tests, for operators to run on their own nodes. They change nothing.

    pytest tests/acceptance --inventory=inventories/prod.py
    pytest tests/acceptance --hosts='ssh://cp1,ssh://w1' --control-plane=cp1 --ssh-config=.lab/ssh_config
    pytest tests/acceptance --hosts='ssh://ops@10.20.0.11' --sudo --gate kubelet:InPlacePodVerticalScaling=true

With --inventory, the hosts and their desired state come from an inventory of pyinfra, and pyinfra connects to them: jump hosts and sudo
with a password work. --hosts, --ssh-config, --sudo and related options belong to pytest-testinfra. With both --inventory and --hosts,
testinfra connects, and the inventory has the desired state of the hosts, by name. --gate COMPONENT:NAME=VALUE sets a gate that a
component must run with in addition: true, false, or absent for a gate that must not be set. Repeat it, or separate several with blanks in
DAYTWO_GATES. A check that does not apply to a node is skipped; a check without evidence fails. The API is asked if a control-plane node
is among the hosts: one of the inventory's group control_plane, through its connection, or one that --control-plane names, by kubectl on
that node. Without one, checks that need the API are skipped. The checks need root on the nodes.
"""
