"""A process that takes what is left over: whoever observes and predicts comes first."""

from __future__ import annotations

import os
from collections.abc import Set
from pathlib import Path

INTERRUPTS = Path("/proc/interrupts")


def stand_back() -> None:
    """This process and those it starts: give way, and keep off where the disk is answered: commits wait for that"""
    os.nice(19)  # and not SCHED_IDLE: a processor that is idle but for this would be given others' work, and be late
    if hasattr(os, "sched_setaffinity") and INTERRUPTS.exists():
        os.sched_setaffinity(0, undisturbed(os.sched_getaffinity(0), INTERRUPTS.read_text()))


def undisturbed(processors: Set[int], interrupts: str) -> Set[int]:
    """All but the one that has answered most of the devices' interrupts; of one alone, that one

    A virtual processor that is busy may hear of an interrupt only at its next tick, whatever the priority of what it
    runs; then every tenth fdatasync or so takes that long. What a fit costs a commit all the same: benchmarks/fits.py.
    """
    head, *rows = interrupts.splitlines()
    names = [int(name.removeprefix("CPU")) for name in head.split()]
    counts = dict.fromkeys(names, 0)
    for number, *cells in (row.split() for row in rows if row.split()):
        if number[:-1].isdigit():  # a device, not the processor's own timer
            for name, cell in zip(names, cells, strict=False):
                counts[name] += int(cell)
    busiest = max(processors, key=lambda name: counts.get(name, 0))
    return processors - {busiest} if counts.get(busiest) and len(processors) > 1 else processors
