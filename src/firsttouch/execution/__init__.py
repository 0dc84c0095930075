# SPDX-License-Identifier: Apache-2.0
"""Run programs under a placement, and verify the placement.

In: jobs (argv, placement, threads, output files). Out: how each job ended, and the placement that the kernel
reports. Public: ``process_runner`` (``Job``, ``Outcome``, ``run_together`` for measured programs, and
``run_in_foreground`` for one that inherits what this process inherited), ``tasks`` (those that srun starts
together), ``child_process`` (``child`` for others), ``threads`` (``WorkerThread``), ``placement_check``,
``host_lock``, ``counters`` (perf), ``backends`` (native, Apptainer, Spack) and ``build_info``, which identifies
the copies of firsttouch in images and views.
"""

AS_IS, COLD, LOCAL, INTERLEAVE = "as-is", "cold", "local", "interleave"
#: The states of an index in the page cache before a timed run (``index_cache``), with their meaning.
INDEX_STATES = {
    AS_IS: "as earlier programs left it",
    COLD: "not cached",
    LOCAL: "cached on the first NUMA node of the first instance",
    INTERLEAVE: "cached evenly on the NUMA nodes of the scenario",
}
