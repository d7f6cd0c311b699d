"""Colours and shapes of the classes, the same as service/page/palette.js has (a test compares them).

The first eight colours are Okabe and Ito's; twelve more lie as far as possible from them and from each other, to normal
eyes and to those without red, green or blue. Nine shapes: no two of 180 classes share both, and colours that are hard
to tell apart never share a shape. From the 21st class on a region is striped.
"""

from __future__ import annotations

#: For light and for dark ground. Of two classes the negative comes first.
COLOURS = (
    *("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a7d00", "#555555", "#350d8f", "#a9d7b4"),
    *("#4e2900", "#4605eb", "#9672fd", "#7cd8fc", "#fac75c", "#9b3205", "#41374b", "#bd1485", "#a0b487", "#591db6"),
)
ON_DARK = (
    *("#f0803a", "#4fb0ea", "#2bc49a", "#e09cc2", "#f2b63c", "#9ad6f8", "#f0e442", "#c9c9c9", "#3966f5", "#8e6688"),
    *("#c05101", "#e9f2b4", "#8578c8", "#a2fbfe", "#a3837a", "#7e87ff", "#b6fd27", "#f315b6", "#1c8444", "#0ee787"),
)
_PLUS = (-3, -1, -1, 1, 1, 3, 3, 1, 1, -1, -1, -3), (-1, -1, -3, -3, -1, -1, 1, 1, 3, 3, 1, 1)
#: Corners in units of a mark's radius, of about equal area; none: a circle
SHAPES: tuple[tuple[tuple[float, float], ...], ...] = (
    ((0, -1.35), (1.2, 0.75), (-1.2, 0.75)),  # triangle
    (),  # circle
    ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),  # square
    ((0, -1.4), (1.15, 0), (0, 1.4), (-1.15, 0)),  # diamond
    tuple((0.45 * a, 0.45 * b) for a, b in zip(*_PLUS, strict=True)),
    ((0, 1.35), (-1.2, -0.75), (1.2, -0.75)),  # triangle on its head
    ((-1.15, -1.15), (1.15, -1.15), (-1.15, 1.15), (1.15, 1.15)),  # hourglass
    ((-1.45, -0.6), (1.45, -0.6), (1.45, 0.6), (-1.45, 0.6)),  # bar
    ((0, -1.6), (0.5, -0.5), (1.6, 0), (0.5, 0.5), (0, 1.6), (-0.5, 0.5), (-1.6, 0), (-0.5, -0.5)),  # star
)


def colour(k: int) -> str:
    """The class of a class's colour in a style sheet"""
    return f"c{k % len(COLOURS)}"


def shape(k: int) -> int:
    """Which of the shapes a class has"""
    return (k + 2 * (k // len(COLOURS))) % len(SHAPES)


def striped(k: int) -> bool:
    return k // len(COLOURS) % 2 == 1
