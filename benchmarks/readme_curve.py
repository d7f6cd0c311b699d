"""docs/stream.svg, the README's curves: python -m benchmarks.readme_curve [FOLDER]

The default session beside River's learners on the paper's embedding of Fashion-MNIST (test), shuffled, each point
predicted and then learned: the accuracy so far; and of the newest 300 points where the classes are permuted after
5,000. Means of as many shuffles as real_streams has; what River did there is taken from its files (`.benchmarks/`).
Of River's, shown are the one that is best on either stream, GaussianNB, and scaled softmax regression.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from benchmarks.real_streams import DEFAULT, OURS, PEERS, SHUFFLES, Results, Stream, data_folder, measure, streams
from service.geometry import Array

FILE = Path(__file__).parents[1] / "docs" / "stream.svg"
WIDTH, HEIGHT, LEFT, RIGHT, TOP, GAP = 620, 400, 42, 182, 30, 54
PANEL = (HEIGHT - TOP - GAP - 34) / 2
NEWEST = 300
TITLES = {
    "Fashion-MNIST test": "Fashion-MNIST in the disk: accuracy so far, %",
    "Fashion, classes permuted at 5,000": f"the same, classes permuted after 5,000: of the newest {NEWEST}, %",
}
LINES = {DEFAULT: ("default session", "ours"), "River softmax, scaled, raw": ("River softmax", "c")}
NAIVE, FOREST = "River GaussianNB, raw", "River ARF, raw"
LINES |= {NAIVE: ("River GaussianNB", "a"), FOREST: ("River ARF", "b")}
STYLE = """
text { font: 15px system-ui, sans-serif; fill: #57606a } .grid { stroke: #8c959f; stroke-opacity: .3 }
polyline { fill: none; stroke-width: 1.7; stroke-linejoin: round }
.ours { stroke: #d1390d; stroke-width: 2.6 } .a { stroke: #1f6fd0 } .b { stroke: #2c8a3d } .c { stroke: #8250df }
text.ours { fill: #d1390d; stroke: none; font-weight: 600 } text.a { fill: #1f6fd0; stroke: none }
text.b { fill: #2c8a3d; stroke: none } text.c { fill: #8250df; stroke: none }
@media (prefers-color-scheme: dark) {
text { fill: #9da7b1 } .ours { stroke: #ff7b54 } .a { stroke: #6cb0ff } .b { stroke: #56c470 } .c { stroke: #b892ff }
text.ours { fill: #ff7b54 } text.a { fill: #6cb0ff } text.b { fill: #56c470 } text.c { fill: #b892ff } }
"""


def curve(stream: Stream, results: Results, name: str) -> tuple[Array, Array]:
    """Positions and per cent, thinned to what 400 pixels show"""
    right = 100 * (1 - np.mean(results[name].wrong, axis=0))
    if stream.drift is None:
        at = np.unique(np.geomspace(20, len(right), 160).astype(int))
        return np.log10(at), (np.cumsum(right) / np.arange(1, len(right) + 1))[at - 1]
    at = np.arange(NEWEST, len(right) + 1, 50)
    sums = np.concatenate([[0.0], np.cumsum(right)])
    return at.astype(float), (sums[at] - sums[at - NEWEST]) / NEWEST


def panel(stream: Stream, results: Results, top: float, low: float) -> list[str]:
    """One set of axes from `low` to 100 %, the names of the lines at their ends"""
    ticks = [(np.log10(t), f"{t:,}") for t in (100, 1000, 10_000)] if stream.drift is None else []
    ticks = ticks or [(float(t), f"{t:,}") for t in (2500, 5000, 7500, 10_000)]
    first = np.log10(20) if stream.drift is None else 0.0
    last = np.log10(len(stream.y)) if stream.drift is None else float(len(stream.y))

    def x(position: float) -> float:
        return LEFT + (position - first) / (last - first) * (WIDTH - LEFT - RIGHT)

    def y(share: float) -> float:
        return top + (100 - share) / (100 - low) * PANEL

    parts = [f'<text x="{LEFT}" y="{top - 10:.0f}">{TITLES[stream.name]}</text>']
    for share in np.arange(low, 101, (100 - low) / 4):
        parts.append(f'<path class="grid" d="M{LEFT} {y(share):.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(share) + 5:.1f}" text-anchor="end">{share:.0f}</text>')
    parts += [
        f'<text x="{x(at):.1f}" y="{top + PANEL + 16:.0f}" text-anchor="middle">{word}</text>' for at, word in ticks
    ]
    names = list[tuple[float, str, str]]()
    for name, (word, kind) in reversed(LINES.items()):
        at, share = curve(stream, results, name)
        points = " ".join(
            f"{x(a):.1f},{y(s):.1f}" for a, s in zip(at.tolist(), share.tolist(), strict=True) if s >= low
        )
        parts.append(f'<polyline class="{kind}" points="{points}"/>')
        whole = 100 * (1 - np.mean(results[name].wrong))
        names.append((y(float(share[-1])), f"{word} {whole:.1f}", kind))
    below = -np.inf
    for height, word, kind in sorted(names, key=lambda each: (each[0], each[2] != "ours")):
        below = max(height + 5, below + 17)
        parts.append(f'<text class="{kind}" x="{WIDTH - RIGHT + 7}" y="{below:.1f}">{word}</text>')
    return parts


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.readme_curve")
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--shuffles", type=int, default=SHUFFLES)
    asked = parser.parse_args([] if words is None else words)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">', "<style>", STYLE]
    parts.append("</style>")
    top = float(TOP)
    others = [name for name in (*OURS, *PEERS) if name not in LINES]
    for stream in (stream for stream in streams(data_folder(asked.folder)) if stream.name in TITLES):
        results: Results = {}
        for seed in range(asked.shuffles):
            measure(stream, results, seed, without=others)
        parts += panel(stream, results, top, low=60.0 if stream.drift is None else 0.0)
        top += PANEL + GAP
    if len(parts) < 6:
        sys.exit("the curves need the paper's embeddings: python -m benchmarks.readme_curve FOLDER")
    FILE.write_text("\n".join([*parts, "</svg>"]) + "\n")
    print(FILE)


if __name__ == "__main__":
    main(sys.argv[1:])
