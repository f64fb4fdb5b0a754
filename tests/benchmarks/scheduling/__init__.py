"""Placement and the planner against the real scheduler, on generated clusters."""
