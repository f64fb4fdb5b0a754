"""pyinfra's settings for daytwo (https://docs.pyinfra.com, Config). Read from the folder pyinfra is started in."""

# One host that fails stops the run: no later deploy file goes on as if nothing had happened.
FAIL_PERCENT = 0

# A node that does not answer must not hold a roll-out for minutes.
CONNECT_TIMEOUT = 20
