"""The paper's tables and the peers, side by side."""

import os

# Before NumPy is loaded: its BLAS on two busy cores would make the paper's second order seven times slower, not faster.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
