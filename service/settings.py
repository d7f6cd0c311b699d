"""Settings, each an environment variable HOROCYCLE_<NAME>. Read when a process starts; layers below get values."""

from __future__ import annotations

from pathlib import Path

from pydantic import AliasChoices, Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="HOROCYCLE_", populate_by_name=True, extra="forbid")

    host: str = Field(default="127.0.0.1", description="address to listen on")
    port: int = Field(default=8000, ge=0, le=65535, description="port to listen on")
    workers: int = Field(default=1, ge=1, le=64, description="worker processes")
    data: Path = Field(default=Path("data"), description="folder of the private store, when there is no redis_url")
    redis_url: str | None = Field(
        default=None,
        validation_alias=AliasChoices("redis_url", "HOROCYCLE_REDIS_URL", "REDIS_URL"),
        description="URL of the Redis or Valkey to use; None: run a private one",
    )
    body_limit: int = Field(default=32 << 20, ge=1024, description="bytes a body of points may have")
    session_body_limit: int = Field(default=1 << 20, ge=1024, description="bytes any other body may have")
    queue: int = Field(default=1024, ge=1, description="requests that may wait for one session in one worker")
    deadline: float = Field(default=5.0, gt=0, description="seconds to wait for the store")
    label_ttl: float = Field(default=86400.0, gt=0, description="seconds a predicted point waits for its label")
    waiting_points: int = Field(default=100_000, ge=1, description="points of a session that may wait for their labels")
    event_streams: int = Field(
        default=256, ge=0, description="streams, of events or messages, that one worker keeps open"
    )
    heartbeat: float = Field(default=10.0, gt=0, description="seconds between the heartbeats of an event stream")
    fit_workers: int = Field(default=1, ge=0, le=64, description="fit workers to run; 0: they run elsewhere")
    fit_points: int = Field(default=1_000_000, ge=2, description="points a fit may have")
    fit_seconds: float = Field(default=600.0, gt=0, description="seconds a fit may take")
    fit_memory: int = Field(default=4 << 30, ge=256 << 20, description="bytes of address space a fit may have")
    demo: bool = Field(default=True, description="let the page start a demo stream on the server")
    access_log: bool = Field(default=False, description="log every request, as JSON, on stderr")
