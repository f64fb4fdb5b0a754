"""Tests in several lanes side by side, each with a lab of its own: pytest's option --lanes, over pytest-xdist.

xdist starts the workers, carries the reports, starts a worker that crashed again, and hands out whole groups of tests (loadscope, of which
`dispatch` is a small subclass). By hand is what it cannot do:

- A group is what a module has for one shape of lab, and goes to a lane whose lab has this shape, or is worth making: the longest first, and
  only when it asks for one (`schedule`). xdist gives any group to any worker, and a second one before the first is done.
- A worker owns a lab: it is made, looked at, reset and taken down between groups (`labs`, `worker`). xdist's own loop runs a group's last
  test only when it knows the next group, whose lab may be another one.
- Lanes with a lab do not load the thousands of tests that need none; xdist has all workers collect the same.
- A lane that only helps: it begins when another one has ended (`c:small@u`).
- Lines while the run goes on, and tables of modules, lanes and causes (`controller`).
"""
