"""The workers' supervisor: restarts those that end, and on SIGHUP replaces one after another without a failed request.

A worker's successor listens on the same socket before the worker is told to drain (SIGUSR1, see http_protocol), so that
no connection waits for it. One successor at a time: of N workers N + 1 are in memory. If a successor does not get ready
the worker stays, and the restart ends there with a line in the log.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

from service import telemetry, telemetry_files

log = logging.getLogger(__name__)
PATIENCE = 120.0  # seconds that a successor may take to get ready


class Workers(Multiprocess):
    """uvicorn's supervisor, which also retires the metrics of workers that have ended

    It closes its copy of the worker's end of their pipe, which uvicorn keeps open. So a health check of a worker that
    is killed ends with EOF at once; else it would wait until its time-out, and handle no signal meanwhile.
    """

    def __init__(
        self, config: uvicorn.Config, listening: socket.socket, metrics: Path, first: Iterable[Process] = ()
    ) -> None:
        super().__init__(config, sockets=[listening])
        self._metrics, self._has_terminal = metrics, has_terminal()
        self.processes = list(first)
        self._outdated: deque[Process] = deque()  # to be replaced
        self._successor: Process | None = None  # of the first of them
        self._until = 0.0  # when it must be ready
        self._draining: list[Process] = []

    def init_processes(self) -> None:
        while len(self.processes) < self.processes_num:
            self.processes.append(self._started())

    def _started(self) -> Process:
        process = Process(self.config, self.sockets)
        process.start()
        process.child_conn.close()
        return process

    def handle_hup(self) -> None:
        if self._has_terminal and not has_terminal():  # nobody asked for a restart: the terminal was closed
            return self.handle_term()
        self._outdated.extend(each for each in self.processes if each not in self._outdated)

    def keep_subprocess_alive(self) -> None:
        super().keep_subprocess_alive()
        for process in self.processes:
            process.child_conn.close()
        self._draining = [each for each in self._draining if each.process.is_alive()]
        if self._outdated and not self._draining and not self.should_exit.is_set():
            self._replace(self._outdated[0])
        telemetry_files.retire(self._metrics, {each.pid for each in self._all() if each.pid})

    def _replace(self, worker: Process) -> None:
        """One step towards that; called again and again"""
        if self._successor is None:
            self._successor, self._until = self._started(), time.monotonic() + PATIENCE
        successor = self._successor
        if successor.process.is_alive() and is_ready(successor):
            self._outdated.popleft()
            place = self.processes.index(worker) if worker in self.processes else -1
            if place < 0:  # it has ended by itself, and was replaced at once
                successor.terminate()
                self._draining.append(successor)
            else:
                self.processes[place] = successor
                os.kill(worker.process.pid or 0, signal.SIGUSR1)
                self._draining.append(worker)
                log.warning("worker %s was replaced by %s", worker.pid, successor.pid)
            self._successor = None
        elif not successor.process.is_alive() or time.monotonic() > self._until:
            log.error("worker %s was not replaced: %s did not get ready", worker.pid, successor.pid)
            successor.kill()
            successor.join()
            self._successor = None
            self._outdated.clear()

    def _all(self) -> list[Process]:
        return [*self.processes, *self._draining, *([self._successor] if self._successor else [])]

    def terminate_all(self) -> None:
        self.processes = self._all()
        super().terminate_all()


def run_alone(config: Callable[[], uvicorn.Config], listening: socket.socket, metrics: Path) -> None:
    """A single worker in this process, until SIGINT or SIGTERM. After the first SIGHUP it is a process of its own"""
    ended, successors, asked = list[int](), list[Process](), deque[Any]()
    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn raises them again after its shutdown
        signal.signal(number, lambda number, _: ended.append(number))
    terminal = has_terminal()

    def start() -> None:
        os.environ[telemetry.FOLDER] = str(metrics)
        process = Process(config(), [listening])
        process.start()
        process.child_conn.close()
        until = time.monotonic() + PATIENCE
        while not is_ready(process) and process.process.is_alive() and time.monotonic() < until:
            time.sleep(0.1)
        if process.process.is_alive() and time.monotonic() < until:
            successors.append(process)
            log.warning("worker %s was replaced by %s", os.getpid(), process.pid)
            return os.kill(os.getpid(), signal.SIGUSR1)
        log.error("worker %s was not replaced: %s did not get ready", os.getpid(), process.pid)
        process.kill()
        process.join()
        del os.environ[telemetry.FOLDER]
        asked.clear()

    def restart(*_: Any) -> None:
        if terminal and not has_terminal():
            return signal.raise_signal(signal.SIGTERM)
        asked.append(None)
        if len(asked) == 1:
            threading.Thread(target=start, daemon=True).start()

    signal.signal(signal.SIGHUP, restart)
    uvicorn.Server(config()).run(sockets=[listening.dup()])
    if successors and not ended:
        telemetry.publish()  # what was counted here stays in the sum
        workers = Workers(config(), listening, metrics, successors)
        if len(asked) > 1:  # while it was replaced
            workers.handle_hup()
        return workers.run()
    for process in successors:
        process.terminate()
        process.join()


def is_ready(process: Process) -> bool:
    """Whether its newest answer says that it listens. uvicorn's own question leaves answers that came late in the pipe,
    and reads one a time: a worker that was slow to import would be told to be unready long after"""
    answers = list[bool]()
    try:
        process.parent_conn.send(b"ping")
        while process.parent_conn.poll(0.05):
            answers.append(process.parent_conn.recv())
    except (OSError, EOFError):
        return False
    return bool(answers and answers[-1])


def has_terminal() -> bool:
    """Whether there is a terminal that may hang up"""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
