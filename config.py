"""pyinfra's settings for daytwo (pyinfra.api.config). Read from the folder pyinfra is started in."""

from pyinfra import config

# One host that fails stops the run: no later deploy file goes on as if nothing had happened.
config.FAIL_PERCENT = 0

# A node that does not answer must not hold a roll-out for minutes.
config.CONNECT_TIMEOUT = 20
