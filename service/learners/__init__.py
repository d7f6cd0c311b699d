"""The online learners, by name. Each is a module: a frozen State, and init, score, predict, observe."""

from __future__ import annotations

from service.learners import drift, loops
from service.learners.contract import Learner, Outcome, learner_of
from service.learners.encoding import decode, encode
from service.learners.registry import LEARNERS

__all__ = ["LEARNERS", "Learner", "Outcome", "decode", "drift", "encode", "learner_of"]

loops.note_compiled()  # all are imported here: the learners', and drift's
