"""CPU affinity of fits: not the CPU that handles most device interrupts."""

from __future__ import annotations

import os
from collections.abc import Set

import pytest

from service.fits.priority import INTERRUPTS, undisturbed

TWO = """\
           CPU0       CPU1
  1:          9          0  IO-APIC   1-edge      i8042
 36:          3     322152  PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0
 38:       2110          0  PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0
LOC:   99999999          0   Local timer interrupts
ERR:          0
"""
ONE_IS_OFF = """\
           CPU0       CPU2       CPU3
 36:          3         12         40  PCI-MSIX
RES:        500        500        500   Rescheduling interrupts
"""
NO_DEVICES = """\
           CPU0       CPU1
LOC:     204353     240491   Local timer interrupts
"""


@pytest.mark.parametrize(
    ("processors", "interrupts", "left"),
    [
        ({0, 1}, TWO, {0}),
        ({1}, TWO, {1}),
        ({0}, TWO, {0}),
        ({0, 2, 3}, ONE_IS_OFF, {0, 2}),
        ({0, 2}, ONE_IS_OFF, {0}),
        ({0, 1}, ONE_IS_OFF, {1}),
        ({0, 1}, NO_DEVICES, {0, 1}),
    ],
)
def test_all_but_the_one_that_answers_most_devices(processors: Set[int], interrupts: str, left: Set[int]) -> None:
    assert undisturbed(processors, interrupts) == left


@pytest.mark.skipif(not INTERRUPTS.exists(), reason="only Linux counts its interrupts there")
def test_what_this_machine_counts_is_read() -> None:
    all_of_them = os.sched_getaffinity(0)
    left = undisturbed(all_of_them, INTERRUPTS.read_text())
    assert left <= all_of_them
    assert len(left) >= max(1, len(all_of_them) - 1)
