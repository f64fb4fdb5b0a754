"""Packing: on which machines the pods of a cluster can run for the least cost, and what no plan can beat. Pure."""

from roles.engine.packing.model import Cause, Machine, Plan, Problem
from roles.engine.packing.planning import plan
from roles.engine.packing.reading import SCALE_DOWN_DISABLED, read

__all__ = ["SCALE_DOWN_DISABLED", "Cause", "Machine", "Plan", "Problem", "plan", "read"]
