"""The power of owned machines: the data of a host, and drivers behind one protocol (state, on, force_off). Off in order is no driver's
work: the node's own systemd does that."""

from roles.engine.power import model
from roles.engine.power.drivers import PowerError, State, Switch, magic, switch_of
from roles.engine.power.model import Driver, HostPower

__all__ = ["Driver", "HostPower", "PowerError", "State", "Switch", "magic", "model", "switch_of"]
