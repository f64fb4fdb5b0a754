"""The nodes of a cluster as its work needs them: machines woken when pods wait for room, taken away when they are not needed."""
