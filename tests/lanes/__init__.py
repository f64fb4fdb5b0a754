"""Tests in several lanes side by side, each with a lab of its own: pytest's option --lanes, over pytest-xdist.

`schedule` chooses what a lane does next, `durations` knows how long that takes, `labs` has a lane's lab in the shape that a test
needs, `report` writes lines and tables; all of these know neither pytest nor xdist. `worker` is what runs in a lane, `controller`
what runs beside them, `plugin` is what pytest loads.
"""
