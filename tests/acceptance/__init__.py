"""Checks that operators point at their own nodes. They read, and change nothing.

    pytest tests/acceptance --hosts='ssh://cp1,ssh://w1' --ssh-config=.lab/ssh_config
    pytest tests/acceptance --hosts='ssh://ops@10.20.0.11' --sudo --gate kubelet:InPlacePodVerticalScaling=true

--hosts, --ssh-config, --sudo and the rest are pytest-testinfra's. --gate COMPONENT:NAME=VALUE (as often as needed, or several
with blanks between them in DAYTWO_GATES) says which gate a component must run with: true, false, or absent for a gate that
must not be set. A node without that component is skipped. Root is needed on the nodes, and curl.
"""
