"""SSH channels, as paramiko has them: what HTTP through a connection is built on."""

from paramiko import Channel, ChannelException, SSHException, Transport

#: What a channel raises that has gone.
CHANNEL_ERRORS = (OSError, EOFError, SSHException)

__all__ = ["CHANNEL_ERRORS", "Channel", "ChannelException", "SSHException", "Transport"]
