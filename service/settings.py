"""Settings, each an environment variable HOROCYCLE_<NAME>. Read when a process starts; layers below get values."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from service import store_url
from service.hiding import hidden

with hidden("opentelemetry.sdk.metrics"):  # redis-py's own metrics
    from redis.connection import parse_url


def _parts(value: Any) -> Any:
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def _store_url(value: Any) -> Any:
    """As we or redis-py read it; that would say so only when it connects"""
    if isinstance(value, str):
        try:
            several = store_url.parse(value)
            parse_url(several.server(several.seeds[0]) if several else value)  # type: ignore[no-untyped-call]
        except ValueError as error:
            raise ValueError(f"no URL of a store, such as redis://127.0.0.1:6379/0: {error}") from None
    return value


#: Addresses and names of this machine alone
LOOPBACK = ("localhost", "127.0.0.1", "::1")
#: Words with commas between
Listed = Annotated[tuple[str, ...], BeforeValidator(_parts)]


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid")

    host: str = Field(default="127.0.0.1", description="address to listen on")
    port: int = Field(default=8000, ge=0, le=65535, description="port to listen on")
    workers: int = Field(default=1, ge=1, le=64, description="worker processes")
    data: Path = Field(default=Path("data"), description="folder of the private store, when there is no redis_url")
    redis_url: Annotated[str | None, AfterValidator(_store_url)] = Field(
        default=None,
        description="URL of the Redis or Valkey to use, also a cluster's or sentinels'; None: run a private one",
    )
    body_limit: int = Field(default=32 << 20, ge=1024, description="bytes a body of points may have, or a snapshot")
    json_limit: int = Field(default=8 << 20, ge=1024, description="bytes it may have as JSON")
    session_body_limit: int = Field(default=1 << 20, ge=1024, description="bytes any other body may have")
    queue: int = Field(default=1024, ge=1, description="requests that may wait for one session in one worker")
    deadline: float = Field(default=5.0, gt=0, description="seconds to wait for the store")
    wait_replicas: int = Field(
        default=0, ge=0, le=16, description="replicas that must have what was learned before it is acknowledged"
    )
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
    fit_data: Listed = Field(
        default=(), description="folders and URLs below which an administrator's fit may read files; none: nowhere"
    )
    fit_scheduler: str | None = Field(
        default=None, description="address of the Dask scheduler that reads them; None: the fit's own process does"
    )
    demo: bool = Field(default=True, description="let the page start a demo stream on the server")
    connections: int = Field(
        default=4096, ge=1, description="connections of one worker; beyond, the one idle for longest gives way"
    )
    header_seconds: float = Field(default=10.0, gt=0, description="seconds to wait for headers, or for more of a body")
    body_seconds: float = Field(
        default=60.0, gt=0, description="seconds a body may take, and one more for 256 KiB; or nobody reads an answer"
    )
    tls_certificate: Path | None = Field(
        default=None, description="file of the certificate chain: HTTPS instead of HTTP"
    )
    tls_key: Path | None = Field(default=None, description="file of its private key")
    keys: Literal["auto", "on", "off"] = Field(
        default="auto", description="API keys: on, off, or auto: on unless it listens on loopback"
    )
    hosts: Listed = Field(default=(), description="names in the Host header beside loopback and `host`; *: any")
    origins: Listed = Field(default=(), description="web pages that may call, as https://example.org")
    direct: bool = Field(default=True, description="answer observe and predict in the HTTP protocol, past ASGI")
    otel: bool = Field(default=False, description="send traces and metrics by OpenTelemetry, as OTEL_* variables say")
    access_log: bool = Field(default=False, description="log every request, as JSON, on stderr")

    @model_validator(mode="before")
    @classmethod
    def _from_environment(cls, given: dict[str, Any]) -> dict[str, Any]:
        """What is not given is read from HOROCYCLE_<NAME>, and redis_url also from REDIS_URL"""
        variables = {"REDIS_URL": "redis_url"} | {f"HOROCYCLE_{name.upper()}": name for name in cls.model_fields}
        return {name: os.environ[key] for key, name in variables.items() if key in os.environ} | given

    @model_validator(mode="after")
    def _whole_tls(self) -> Settings:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key go together")
        for path in (self.tls_certificate, self.tls_key):
            if path is not None and not path.is_file():
                raise ValueError(f"there is no file {path}")
        return self

    @property
    def with_keys(self) -> bool:
        """Whether API keys are asked for. Off loopback they are, unless that was said to be off"""
        return self.keys == "on" or (self.keys == "auto" and self.host not in LOOPBACK)
