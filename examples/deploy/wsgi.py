"""A WSGI application, for gunicorn: ``MODEL=model.onnx gunicorn wsgi:application``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any

import service


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answer a request: ``POST /`` calls the network, ``GET`` asks for its health."""
    if environ["REQUEST_METHOD"] == "POST":
        status, body = service.answer(environ["wsgi.input"].read())
    else:
        status, body = 200, service.health()
    start_response(f"{status} {HTTPStatus(status).phrase}", [("Content-Length", str(len(body)))])
    return [body]
