"""Checks that operators point at their own nodes: those of deploys/checks.py, as tests. They read, and change nothing.

    pytest tests/acceptance --inventory=inventories/prod.py
    pytest tests/acceptance --hosts='ssh://cp1,ssh://w1' --ssh-config=.lab/ssh_config
    pytest tests/acceptance --hosts='ssh://ops@10.20.0.11' --sudo --gate kubelet:InPlacePodVerticalScaling=true

With --inventory, hosts and what they should run with come from an inventory of pyinfra, which connects to them: jump hosts and sudo with
a password work. --hosts, --ssh-config, --sudo and the rest are pytest-testinfra's; with --inventory beside --hosts, testinfra connects, and
the inventory only says what the hosts should run with, by their names. --gate COMPONENT:NAME=VALUE (as often as needed, or several with
blanks between them in DAYTWO_GATES) says which gate a component must run with beside those: true, false, or absent for a gate that
must not be set. What does not apply to a node is skipped; what could not be seen fails. The API is asked where a control-plane node is
among the hosts: through its connection with --inventory, else by kubectl on that node; where none is, what only the API tells is
skipped. Root is needed on the nodes.
"""
