"""`veloxseg serve`: everything is started here, in order, and ended in the opposite order."""

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from veloxseg.console import say
from veloxseg.errors import ConfigError, ModelError, OutputError, shown
from veloxseg.extras import require
from veloxseg.files import claimed
from veloxseg.machine import NOTICE
from veloxseg.serve.cases import open_case, remove_strays
from veloxseg.serve.guard import read_or_make_token
from veloxseg.serve.logs import log
from veloxseg.serve.models import open_models
from veloxseg.serve.settings import Settings
from veloxseg.serve.store import Store

__all__ = ["serve"]

BACKLOG = 256
MOST_CONNECTIONS = 512
SWITCH_SECONDS = 0.001  # a thread that reads slices may not keep an answer waiting for Python's 5 ms
GRACE_SECONDS = 3  # for requests that are under way when the server is told to stop


def serve(settings: Settings, scans: Sequence[Path] = ()) -> None:
    """Serves until SIGTERM or Ctrl-C; `scans` are the files of a case to start with."""
    for scan in scans:
        if not scan.is_file():
            raise ConfigError(f"--open {shown(scan)} is no file; give the scans of one case")
    require("serve", "veloxseg serve")
    import uvicorn

    from veloxseg.serve.app import build_app
    from veloxseg.serve.patience import PatientProtocol
    from veloxseg.serve.server import Server

    sys.setswitchinterval(SWITCH_SECONDS)
    models = open_models(settings.models)
    store = Store(settings.folder)
    with claimed(settings.folder), contextlib.closing(_listen(settings)) as listener:
        settings = replace(settings, port=listener.getsockname()[1])
        token = read_or_make_token(settings)
        remove_strays(store)  # before anybody can make a case: its folder is there a moment before its row
        open_case(store, scans)
        server = Server(settings, store, models, token)
        http = uvicorn.Server(
            uvicorn.Config(
                build_app(server),
                http=PatientProtocol,
                lifespan="on",
                access_log=False,
                log_level="error",
                server_header=False,
                proxy_headers=False,
                ws="none",
                backlog=BACKLOG,
                limit_concurrency=MOST_CONNECTIONS,
                timeout_graceful_shutdown=GRACE_SECONDS,
                ssl_certfile=settings.certificate,
                ssl_keyfile=settings.key,
            )
        )
        with _signals_are_for(http):
            server.start()
            say(f"{NOTICE}\n{settings.address}/#token={token}")
            log("server started", port=settings.port, models=len(models))
            try:
                asyncio.run(_serve(http, server, listener))
            finally:
                server.close()
                log("server stopped")
        if server.supervisor.problem:
            raise ModelError(server.supervisor.problem)


async def _serve(http: object, server: object, listener: socket.socket) -> None:
    """Serves, and ends when a worker says that it can never start."""

    async def end_if_hopeless() -> None:
        while not server.supervisor.problem:  # type: ignore[attr-defined]
            await asyncio.sleep(0.2)
        http.should_exit = True  # type: ignore[attr-defined]

    watching = asyncio.create_task(end_if_hopeless())
    await http.serve(sockets=[listener])  # type: ignore[attr-defined]
    watching.cancel()


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
        listener.listen(BACKLOG)  # from now on connections wait, so the address can be told
    except OSError as error:
        listener.close()
        if isinstance(error, socket.gaierror):
            raise ConfigError(f"--host {settings.host} is no address of this machine; give one") from error
        raise OutputError(
            f"cannot listen at {settings.host} port {settings.port} ({error.strerror}); choose another --port"
        ) from error
    return listener


@contextlib.contextmanager
def _signals_are_for(http: object):  # type: ignore[no-untyped-def]
    """uvicorn ends at a signal and then raises it once more, for whoever comes next: nobody, we are done by then."""
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
