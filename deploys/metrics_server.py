"""The metrics API for autoscalers: what it needs is checked, metrics-server is applied from your own image, and proven with fresh metrics.

pyinfra inventories/prod.py deploys/metrics_server.py --data metrics_server=registry.example.com/metrics-server:v0.9.0 --dry
pyinfra inventories/prod.py deploys/metrics_server.py -y
"""

from roles.metrics_server import metrics_server

metrics_server()
