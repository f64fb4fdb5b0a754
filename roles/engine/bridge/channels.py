"""paramiko's SSH channels: the basis of HTTP through a connection."""

from paramiko import Channel, ChannelException, SSHException, Transport

#: The errors of a channel that is gone.
CHANNEL_ERRORS = (OSError, EOFError, SSHException)

__all__ = ["CHANNEL_ERRORS", "Channel", "ChannelException", "SSHException", "Transport"]
