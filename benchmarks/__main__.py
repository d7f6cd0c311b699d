"""python -m benchmarks [name …]: all benchmarks in turn, or those named. `results/` holds what a run has printed."""

from __future__ import annotations

import sys

from benchmarks import hyperboloid_perceptron, learners, observe, paper_table1

BENCHMARKS = {
    "paper_table1": paper_table1,
    "hyperboloid_perceptron": hyperboloid_perceptron,
    "learners": learners,
    "observe": observe,
}


def main(names: list[str]) -> None:
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        sys.exit(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    for name in names or BENCHMARKS:
        print(f"=== {name}\n", flush=True)
        BENCHMARKS[name].main()
        print(flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
