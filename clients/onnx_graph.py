"""As much of NumPy as clients/export.py uses, written down as the nodes of an ONNX graph instead of computed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 18


class Tensor:
    """A value of the graph, by its name"""

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph, self.name = graph, name

    __array_ufunc__ = None  # np.float64 * tensor is ours, not NumPy's

    def __add__(self, other: Any) -> Tensor:
        return self.graph.node("Add", self, other)

    def __sub__(self, other: Any) -> Tensor:
        return self.graph.node("Sub", self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return self.graph.node("Sub", other, self)

    def __mul__(self, other: Any) -> Tensor:
        return self.graph.node("Mul", self, other)

    def __truediv__(self, other: Any) -> Tensor:
        return self.graph.node("Div", self, other)

    def __matmul__(self, other: Any) -> Tensor:
        return self.graph.node("MatMul", self, other)

    def __lt__(self, other: Any) -> Tensor:
        return self.graph.node("Less", self, other)

    def __gt__(self, other: Any) -> Tensor:
        return self.graph.node("Greater", self, other)

    def __ge__(self, other: Any) -> Tensor:
        return self.graph.node("Not", self.graph.node("Less", self, other))

    __radd__, __rmul__ = __add__, __mul__

    def __getitem__(self, key: Any) -> Tensor:
        """[:, i], a column as a vector, or [:, None], a vector as a column"""
        _, column = key
        if column is None:
            return self.graph.node("Unsqueeze", self, np.array([1], dtype=np.int64))
        return self.graph.node("Gather", self, np.array(column, dtype=np.int64), axis=1)


class Graph:
    def __init__(self) -> None:
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []

    def input(self, name: str, d: int) -> Tensor:
        self._inputs.append(helper.make_tensor_value_info(name, TensorProto.DOUBLE, ["n", d]))
        return Tensor(self, name)

    def node(self, kind: str, *values: Any, **attributes: Any) -> Tensor:
        name = f"v{len(self._nodes)}"
        names = [value.name if isinstance(value, Tensor) else self._constant(value) for value in values]
        self._nodes.append(helper.make_node(kind, names, [name], **attributes))
        return Tensor(self, name)

    def _constant(self, value: Any) -> str:
        """float64, but for axes and places, which are arrays of integers"""
        array = value if isinstance(value, np.ndarray) and value.dtype == np.int64 else np.asarray(value, np.float64)
        name = f"c{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name))
        return name

    def sqrt(self, x: Any) -> Tensor:
        return self.node("Sqrt", x)

    def log(self, x: Any) -> Tensor:
        return self.node("Log", x)

    def exp(self, x: Any) -> Tensor:
        return self.node("Exp", x)

    def abs(self, x: Any) -> Tensor:
        return self.node("Abs", x)

    def sign(self, x: Any) -> Tensor:
        return self.node("Sign", x)

    def where(self, condition: Any, yes: Any, no: Any) -> Tensor:
        return self.node("Where", condition, yes, no)

    def concatenate(self, parts: Sequence[Any], axis: int) -> Tensor:
        return self.node("Concat", *parts, axis=axis)

    def sum(self, x: Any, axis: int, keepdims: bool) -> Tensor:
        return self.node("ReduceSum", x, np.array([axis], dtype=np.int64), keepdims=int(keepdims))

    def max(self, x: Any, axis: int, keepdims: bool) -> Tensor:
        return self.node("ReduceMax", x, np.array([axis], dtype=np.int64), keepdims=int(keepdims))

    def clip(self, x: Any, low: float, high: float) -> Tensor:
        return self.node("Min", self.node("Max", x, low), high)

    def argmax(self, x: Any, axis: int) -> Tensor:
        return self.node("ArgMax", x, axis=axis, keepdims=0)

    def cast(self, x: Any, *, integer: bool = False) -> Tensor:
        return self.node("Cast", x, to=TensorProto.INT64 if integer else TensorProto.DOUBLE)

    def finished(self, outputs: Mapping[str, tuple[Tensor, int]], model: Mapping[str, Any]) -> bytes:
        """The file; checked by onnx"""
        told = []
        for name, (value, axes) in outputs.items():
            self._nodes.append(helper.make_node("Identity", [value.name], [name]))
            kind = TensorProto.INT64 if name == "index" else TensorProto.DOUBLE
            told.append(helper.make_tensor_value_info(name, kind, ["n", len(model["labels"])][:axes]))
        graph = helper.make_graph(self._nodes, "horocycle", self._inputs, told, self._constants)
        found = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
        about = {"labels": json.dumps(model["labels"]), "algorithm": model["algorithm"]}
        helper.set_model_props(found, about)
        onnx.checker.check_model(found)
        content: bytes = found.SerializeToString()
        return content
