"""Frames of WebSocket texts, as uvicorn's protocol would write them."""

from __future__ import annotations

import pytest
from websockets.frames import Frame, Opcode

from service.process.http_protocol import frame_head


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65535, 65536, 100_000])
def test_a_text_has_the_head_that_the_library_gives_it(size: int) -> None:
    text = b"x" * size
    assert frame_head(text) + text == Frame(Opcode.TEXT, text).serialize(mask=False)
