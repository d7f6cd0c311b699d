"""create_app(): the wiring. Imported by nobody but the launcher."""

from __future__ import annotations

from fastapi import FastAPI


def create_app() -> FastAPI:
    app = FastAPI(title="Horocycle", description="Online classification in the Poincaré ball.", version="0.1.0")

    @app.get("/health/live", summary="The process is up")
    def live() -> dict[str, str]:
        return {"status": "live"}

    return app
