"""The application: routes, errors and the guard, put together; and a protocol that lets stalling clients go."""

import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import anyio.to_thread
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from veloxseg.errors import VeloxSegError
from veloxseg.serve import api
from veloxseg.serve.cases import Missing
from veloxseg.serve.guard import Guard, Receive, Scope, Send
from veloxseg.serve.housekeeping import keep_house
from veloxseg.serve.logs import log
from veloxseg.serve.refusal import Refusal
from veloxseg.serve.routes import OPERATIONS
from veloxseg.serve.server import Server

__all__ = ["build_app"]

THREADS = 8  # for the handlers that write; more would only wait for each other


def build_app(server: Server) -> Any:
    """The ASGI application of a server."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.watch.run)
            tasks.start_soon(keep_house, server)
            yield
            await server.watch.stop()
            tasks.cancel_scope.cancel()

    routes = [Route(one.route, one.handler, methods=[one.method]) for one in OPERATIONS]
    handlers: Any = dict.fromkeys((Refusal, Missing, VeloxSegError), api.refused)
    app = Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan)
    app.state.server = server
    return Guard(_Logged(app, server), server.settings, server.token)


class _Logged:
    """One log line per request: the route, never the path, because a path may hold a name of a file."""

    def __init__(self, app: Any, server: Server) -> None:
        self.app, self.server = app, server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        began, status = time.monotonic(), [0]

        async def noting(message: Any) -> None:
            if message["type"] == "http.response.start":
                status[0] = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, noting)
        except Exception as error:
            log("internal error", kind=type(error).__name__)
            if status[0] == 0:
                await JSONResponse({"error": "internal error"}, status_code=500)(scope, receive, noting)
        finally:
            self.server.requests += 1
            if scope["method"] != "GET" or status[0] >= 400:
                route = scope.get("route")
                where = getattr(route, "path", "none")
                log(
                    "request",
                    method=scope["method"],
                    route=where,
                    status=status[0],
                    ms=round(1000 * (time.monotonic() - began)),
                )
