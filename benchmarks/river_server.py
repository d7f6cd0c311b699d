"""The peer of `observe.py`: River's perceptron behind FastAPI, as its users write it. In memory, nothing is stored.

uvicorn benchmarks.river_server:app --loop uvloop --http httptools

With RIVER_STORE=<url> its weights are written to that Redis before every answer, as a user would have to who does not
want to lose them.
"""

from __future__ import annotations

import os
from collections.abc import Hashable

import orjson
from fastapi import FastAPI
from pydantic import BaseModel
from redis.asyncio import Redis
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
store = Redis.from_url(os.environ["RIVER_STORE"]) if "RIVER_STORE" in os.environ else None


# `async def`: a plain `def` would be run in a thread, and cost more
@app.post("/observe")
async def observe(batch: Batch) -> Columns:
    predictions = learn(batch)
    mistakes = await counted(predictions, batch)
    return Columns(accepted=len(predictions), mistakes=mistakes, predictions=predictions)


@app.post("/observe/summary")
async def observe_summary(batch: Batch) -> Summary:
    predictions = learn(batch)
    mistakes = await counted(predictions, batch)
    return Summary(accepted=len(predictions), mistakes=mistakes)


@app.delete("/model")
async def forget() -> None:
    global model
    model = linear_model.Perceptron()


async def counted(predictions: list[int], batch: Batch) -> int:
    """The mistakes, once the model is stored where there is a store"""
    if store is not None:
        weights = {"weights": {str(i): w for i, w in model.weights.items()}, "intercept": model.intercept}
        await store.set("model", orjson.dumps(weights))
    return sum(said != label for said, label in zip(predictions, batch.labels, strict=True))


def learn(batch: Batch) -> list[int]:
    """For each point, in order, predict, then learn"""
    predictions = []
    for point, label in zip(batch.points, batch.labels, strict=True):
        x: dict[Hashable, float] = dict(enumerate(point))
        predictions.append(1 if model.predict_one(x) else -1)
        model.learn_one(x, label == 1)
    return predictions
