"""One process at a time, for any number of machines: a Lease of coordination.k8s.io that its holder renews."""

from roles.engine.lease.holding import Holding, LeaseLost
from roles.engine.lease.keeping import ApiLease, LeasePort

__all__ = ["ApiLease", "Holding", "LeaseLost", "LeasePort"]
