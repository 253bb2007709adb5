"""Simulated fleets of workers in virtual time. `benchmarks/fleet_plans.py` has larger ones, of lease strategies alone.

All fleets share one timeline (`timeline`), one checked lease table (`table`), one notion of a worker process's life
(`lifecycle`), and one way to say how even a table is (`balance`). They differ in how much of a worker is real:

    coordinators  lease coordinator, strategy, renewals, handoffs, on a table whose calls are lost, delayed and rejected
    engines       + shard consumers, handlers and records, on the fake AWS
    streams       engines that read several streams

`connection` and `ownership` belong to `coordinators`: faults of single calls, and who may write a lease. `runs` plays random
runs of a `coordinators` fleet, each from one seed.
"""
