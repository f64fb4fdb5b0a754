"""Order, pace and halt: one coordinator drives the hosts of a pyinfra run."""
