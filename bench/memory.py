"""What a process holds in memory, from the kernel's own account."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path

from bench.children import Service


@dataclass(frozen=True)
class Memory:
    """In MiB. `unique`: what ending the process would give back; `fair`: with its share of pages held in common."""

    unique: float
    fair: float


def of_process(pid: int) -> Memory:
    sizes: dict[str, int] = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, _, rest = line.partition(":")
        sizes[name] = int(rest.split()[0])
    return Memory((sizes["Private_Clean"] + sizes["Private_Dirty"]) / 1024, sizes["Pss"] / 1024)


def pool_children(pid: int) -> list[int]:
    """The pool's children of a Celery worker: same command as their parent, since they are forks of it."""
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children if Path(f"/proc/{child}/cmdline").read_bytes() == command]


def of_pool(service: Service, size: int) -> Memory:
    """The median child."""
    children = pool_children(service.pid)
    if len(children) != size:
        raise service.failed(f"has {len(children)} pool children where {size} were expected")
    taken = [of_process(child) for child in children]
    return Memory(statistics.median(m.unique for m in taken), statistics.median(m.fair for m in taken))
