"""CPU priority and affinity of fits: requests come first."""

from __future__ import annotations

import os
from collections.abc import Set
from pathlib import Path

INTERRUPTS = Path("/proc/interrupts")


def stand_back() -> None:
    """Lower the CPU priority of this process and its children; keep off the CPU that handles most device interrupts

    Not SCHED_IDLE: the scheduler counts a CPU that runs only SCHED_IDLE tasks as idle, and would place a worker there.
    """
    os.nice(19)
    if hasattr(os, "sched_setaffinity") and INTERRUPTS.exists():
        os.sched_setaffinity(0, undisturbed(os.sched_getaffinity(0), INTERRUPTS.read_text()))


def undisturbed(processors: Set[int], interrupts: str) -> Set[int]:
    """All CPUs but the one that has handled most device interrupts; if there is only one, that one

    A busy virtual CPU may take an interrupt only at its next timer tick, whatever the priority of the task it runs. If
    that interrupt is the disk's, an fdatasync, and so a commit, waits as long: measured for about every tenth.
    benchmarks/fits.py measures what a fit still costs a commit.
    """
    head, *rows = interrupts.splitlines()
    names = [int(name.removeprefix("CPU")) for name in head.split()]
    counts = dict.fromkeys(names, 0)
    for number, *cells in (row.split() for row in rows if row.split()):
        if number[:-1].isdigit():  # a device; the CPU's own interrupts have names (LOC, RES)
            for name, cell in zip(names, cells, strict=False):
                counts[name] += int(cell)
    busiest = max(processors, key=lambda name: counts.get(name, 0))
    return processors - {busiest} if counts.get(busiest) and len(processors) > 1 else processors
