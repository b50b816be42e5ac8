"""Stages that live in other services, over gRPC (S18). What they promise beside those of `stages`:

- A service is called only while a queue of its own stage is worked off: one that hangs takes time from nobody else's
  visits but for the worker children that wait for it, which `max_parallel` bounds.
- A service that is away costs no attempt and parks nothing: its queues rest, and are tried one by one until it is back.
- What it answers is checked as what a local stage returns is; nonsense about one entity fails that entity alone.
- `ShouldProcess` fails open (S4): what cannot be asked is visited.

`configuration` reads the file that names them, `declaring` makes stages of it, `client` calls, `wire` translates,
`asks` and `visits` are the batches.
"""
