"""The peer of `observe.py`: River's perceptron behind FastAPI, as its users write it. In memory, nothing is stored.

uvicorn benchmarks.river_server:app --loop uvloop --http httptools
"""

from __future__ import annotations

from collections.abc import Hashable

from fastapi import FastAPI
from pydantic import BaseModel
from river import linear_model


class Batch(BaseModel):
    points: list[list[float]]
    labels: list[int]


class Summary(BaseModel):
    accepted: int
    mistakes: int


class Columns(Summary):
    predictions: list[int]


app = FastAPI()
model = linear_model.Perceptron()


# `async def`: a plain `def` would be run in a thread, and cost more
@app.post("/observe")
async def observe(batch: Batch) -> Columns:
    predictions = learn(batch)
    mistakes = sum(said != label for said, label in zip(predictions, batch.labels, strict=True))
    return Columns(accepted=len(predictions), mistakes=mistakes, predictions=predictions)


@app.post("/observe/summary")
async def observe_summary(batch: Batch) -> Summary:
    predictions = learn(batch)
    mistakes = sum(said != label for said, label in zip(predictions, batch.labels, strict=True))
    return Summary(accepted=len(predictions), mistakes=mistakes)


@app.delete("/model")
async def forget() -> None:
    global model
    model = linear_model.Perceptron()


def learn(batch: Batch) -> list[int]:
    """For each point, in order, predict, then learn"""
    predictions = []
    for point, label in zip(batch.points, batch.labels, strict=True):
        x: dict[Hashable, float] = dict(enumerate(point))
        predictions.append(1 if model.predict_one(x) else -1)
        model.learn_one(x, label == 1)
    return predictions
