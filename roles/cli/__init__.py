"""The command `daytwo`, for people who do not know pyinfra. It starts pyinfra with a deploy, and nothing else."""
