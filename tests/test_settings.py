"""Settings are given, else read from the environment, else the defaults."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from service.settings import Settings


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REDIS_URL", *(f"HOROCYCLE_{field.upper()}" for field in Settings.model_fields)):
        monkeypatch.delenv(name, raising=False)


def test_the_environment_is_read_by_name_and_what_is_given_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (Settings().workers, Settings().redis_url) == (1, None)
    for name, value in (("WORKERS", "3"), ("HOSTS", "a.example, b.example"), ("ACCESS_LOG", "true"), ("DATA", "x")):
        monkeypatch.setenv(f"HOROCYCLE_{name}", value)
    found = Settings(workers=2)
    assert (found.workers, found.hosts, found.access_log) == (2, ("a.example", "b.example"), True)
    assert (Settings().workers, str(Settings().data)) == (3, "x")


def test_redis_url_has_a_common_name_and_one_of_ours_which_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://common")
    assert Settings().redis_url == "redis://common"
    monkeypatch.setenv("HOROCYCLE_REDIS_URL", "redis://ours")
    assert Settings().redis_url == "redis://ours"
    assert Settings(redis_url="redis://given").redis_url == "redis://given"


def test_what_is_wrong_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROCYCLE_PORT", "70000")
    with pytest.raises(ValidationError) as caught:
        Settings()
    assert [error["loc"] for error in caught.value.errors()] == [("port",)]
    with pytest.raises(ValidationError, match="Extra inputs"):
        Settings(port=1, nothing=1)  # type: ignore[call-arg]
