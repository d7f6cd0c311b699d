"""Every exception of the service.

HorocycleError
├── InvalidInput                 the caller's fault; names the offending row and value
│   ├── PointOutsideBall         on or outside the ball, or beyond the radius limit
│   ├── NonFinite                NaN or an infinity
│   ├── NotANumber               a string, a boolean, a ragged row where numbers belong
│   ├── DimensionMismatch        a point of another dimension
│   ├── LengthMismatch           as many labels as points, please
│   ├── UnknownLabel             a label that is not one of the learner's
│   └── InvalidParameter         a setting outside its range
└── StateCorrupt                 stored bytes that are no state of ours
"""

from __future__ import annotations


class HorocycleError(Exception):
    """The root. `members` are the facts behind the sentence, for machines."""

    def __init__(self, detail: str, **members: object) -> None:
        super().__init__(detail)
        self.detail = detail
        self.members = members


class InvalidInput(HorocycleError):
    """Something the caller sent cannot be taken; nothing was changed."""


class PointOutsideBall(InvalidInput):
    def __init__(self, index: int, norm: float, limit: float) -> None:
        super().__init__(
            f"point {index} has norm {norm!r}; the limit is {limit!r}", index=index, norm=norm, limit=limit
        )


class NonFinite(InvalidInput):
    def __init__(self, index: int, value: float, what: str = "point") -> None:
        super().__init__(f"{what} {index} holds {value}, which is not finite", index=index, value=str(value))


class NotANumber(InvalidInput):
    def __init__(self, what: str, index: int | None = None, value: object = None) -> None:
        super().__init__(what, index=index, value=repr(value))


class DimensionMismatch(InvalidInput):
    def __init__(self, expected: int, got: int, what: str = "point", index: int = 0) -> None:
        super().__init__(
            f"{what} {index} has {got} coordinates, not {expected}", index=index, expected=expected, got=got
        )


class LengthMismatch(InvalidInput):
    def __init__(self, points: int, labels: int) -> None:
        super().__init__(f"{points} points but {labels} labels", points=points, labels=labels)


class UnknownLabel(InvalidInput):
    def __init__(self, index: int, value: object, allowed: str) -> None:
        super().__init__(f"label {index} is {value!r}, not one of {allowed}", index=index, value=repr(value))


class InvalidParameter(InvalidInput):
    def __init__(self, name: str, value: object, allowed: str) -> None:
        super().__init__(f"{name} is {value!r}; it must be {allowed}", name=name, value=repr(value))


class StateCorrupt(HorocycleError):
    """The checksum, the version, a shape or a dtype of stored bytes is not what was written."""
