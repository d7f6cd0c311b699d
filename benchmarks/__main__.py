"""python -m benchmarks [name …]: all benchmarks in turn, or those named. `results/` holds what a run has printed.

paper_table2 needs the paper's data: `python -m benchmarks.paper_table2 FOLDER`.
"""

from __future__ import annotations

import sys

from benchmarks import (
    commit,
    fit_defaults,
    fits,
    hyperboloid_perceptron,
    learners,
    observe,
    paper_figures,
    paper_table1,
    plan,
    real_streams,
    sessions,
    shard,
    start,
    strategic,
    svm,
    ten_classes,
)

BENCHMARKS = {
    "paper_table1": paper_table1,
    "paper_figures": paper_figures,
    "hyperboloid_perceptron": hyperboloid_perceptron,
    "learners": learners,
    "ten_classes": ten_classes,
    "real_streams": real_streams,
    "svm": svm,
    "fit_defaults": fit_defaults,
    "commit": commit,
    "observe": observe,
    "sessions": sessions,
    "shard": shard,
    "plan": plan,
    "start": start,
    "strategic": strategic,
    "fits": fits,
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
