"""One worker, as uvicorn starts it: in the launcher's own process if it is the only one, else in one of its own.

The launcher does not import this: what the app needs takes its time and its memory, in each process that serves.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import wait

from fastapi import FastAPI

from service.app import create_app
from service.logs import configure
from service.settings import Settings


def app() -> FastAPI:
    """The app of one worker; its settings come by the environment."""
    if (launcher := multiprocessing.parent_process()) is not None:
        threading.Thread(target=_follow, args=[launcher.sentinel], daemon=True).start()
    settings = Settings()
    configure(logging.INFO if settings.access_log else logging.WARNING)
    found = create_app(settings)
    gc.collect()
    gc.freeze()  # what is there now stays: a body of 10,000 rows is not to have it all searched again
    return found


def _follow(launcher: int) -> None:
    """A worker does not outlive its launcher, however that died: its port and its store are another's then."""
    wait([launcher])
    os.kill(os.getpid(), signal.SIGTERM)
