"""Check whether this cluster can resize pods in place: resize a probe pod on each node and remove it; or report what is missing.

pyinfra inventories/prod.py deploys/pod_resize_check.py -y
"""

import sys
from pathlib import Path

if (home := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, home)  # also if pyinfra starts elsewhere: then the run is refused with what to do

from roles.pod_resize import pod_resize_check  # noqa: E402

pod_resize_check()
