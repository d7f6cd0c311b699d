"""A process that takes what is left over: whoever observes and predicts comes first."""

from __future__ import annotations

import os
from collections.abc import Set
from contextlib import suppress
from pathlib import Path

INTERRUPTS = Path("/proc/interrupts")


def stand_back() -> None:
    """This process and those it starts: be nice, and not where the disk is answered, since a commit waits for that"""
    os.nice(10)
    if hasattr(os, "sched_setaffinity") and INTERRUPTS.exists():
        os.sched_setaffinity(0, undisturbed(os.sched_getaffinity(0), INTERRUPTS.read_text()))


def only_when_idle(pid: int) -> None:
    """Another process: run when nobody else wants to"""
    if hasattr(os, "SCHED_IDLE"):
        with suppress(ProcessLookupError):  # it has ended already
            os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))


def undisturbed(processors: Set[int], interrupts: str) -> Set[int]:
    """All but the one that has answered most of the devices' interrupts; of one alone, that one

    A virtual processor that is busy may hear of an interrupt only at its next tick, whatever the priority of what it
    runs. Measured: one fdatasync in ten then takes ms, not tenths of them.
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
