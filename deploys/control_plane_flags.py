"""Set flags of the control plane's components, and the files that flags name: one component at a time, proven or reverted.

pyinfra inventories/prod.py deploys/control_plane_flags.py --dry
pyinfra inventories/prod.py deploys/control_plane_flags.py --data control_plane_flags=kube-scheduler:v=4 -y
"""

import sys
from pathlib import Path

if (home := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, home)  # also if pyinfra starts elsewhere: then the run is refused with what to do

from roles.control_plane_flags import control_plane_flags  # noqa: E402

control_plane_flags()
