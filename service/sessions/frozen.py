"""Records that the type checker keeps frozen, and that are as cheap to make as a plain object.

`dataclass(frozen=True)` makes an instance by one object.__setattr__ a field. A request passes some fifty
of them, which took longer than its learner.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    return dataclass(slots=True)(cls)
