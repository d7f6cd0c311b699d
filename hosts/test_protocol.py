"""The Open Inference Protocol, spoken by a client from PyPI; the OpenAPI document, judged by its specification."""

from __future__ import annotations

import httpx
import numpy as np
import openapi_spec_validator
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from clients import Client
from tests.running import Running
from tests.strategies import points


@pytest.mark.parametrize("dtype", ["FP64", "FP32"])
@pytest.mark.parametrize("binary", [True, False])
def test_a_client_of_the_protocol_predicts(running: Running, dtype: str, binary: bool) -> None:
    X = points(np.random.default_rng(1), 200, 2, 3.0).astype({"FP64": np.float64, "FP32": np.float32}[dtype])
    with Client(running.url) as client:
        session = client.sessions.open(dimension=2, labels=["left", "right"])
        session.observe(X, np.where(X[:, 0] > 0, "right", "left"))
        server = triton.InferenceServerClient(running.url.removeprefix("http://"))
        assert server.is_server_live() and server.is_server_ready() and server.is_model_ready(session.id)
        [asked] = server.get_model_metadata(session.id)["inputs"]
        given = triton.InferInput(asked["name"], list(X.shape), dtype)
        given.set_data_from_numpy(X, binary_data=binary)
        answer = server.infer(session.id, [given])
        expected = session.predict(X)
        assert np.array_equal(answer.as_numpy("scores"), expected.scores)
        assert [each.decode() if isinstance(each, bytes) else each for each in answer.as_numpy("label")] == list(
            expected.predictions
        )
        with pytest.raises(InferenceServerException, match="no session"):
            server.infer("nothing", [given])
        server.close()


def test_the_openapi_document_is_valid(running: Running) -> None:
    document = httpx.get(f"{running.url}/openapi.json").json()
    openapi_spec_validator.validate(document)
    names = [operation["operationId"] for each in document["paths"].values() for operation in each.values()]
    assert len(set(names)) == len(names) and max(map(len, names)) < 25
