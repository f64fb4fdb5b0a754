"""python -m tests.benchmarks up N | down | status"""

import sys

from tests.benchmarks.world import World

world = World()
match sys.argv[1:]:
    case ["up", count]:
        world.up(int(count))
    case ["down"]:
        world.down()
    case ["status"]:
        print(world.pid(), len(world.hosts()), f"{world.memory():.0f} MiB")
