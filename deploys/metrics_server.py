"""The metrics API for autoscalers: what it needs is checked, metrics-server is applied from your own image, and proven with fresh metrics.

pyinfra inventories/prod.py deploys/metrics_server.py --data metrics_server=registry.example.com/metrics-server:v0.9.0 --dry
pyinfra inventories/prod.py deploys/metrics_server.py -y
"""

import sys
from pathlib import Path

if (home := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, home)  # also if pyinfra starts elsewhere: then the run is refused with what to do

from roles.metrics_server import metrics_server  # noqa: E402

metrics_server()
