"""An ASGI application, for uvicorn: ``MODEL=model.onnx uvicorn --lifespan off asgi:application``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import service


async def application(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    """Answer a request: ``POST /`` calls the network, in a thread beside the loop; ``GET`` asks for its health."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    if scope["method"] == "POST":
        status, answer = await asyncio.to_thread(service.answer, body)
    else:
        status, answer = 200, service.health()
    headers = [(b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": answer})
