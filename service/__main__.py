"""python -m service serve --host 127.0.0.1 --port 8000"""

from __future__ import annotations

import argparse
import sys

import uvicorn

from service.app import create_app


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m service", description="Horocycle, served over HTTP.")
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="run the service")
    serve.add_argument("--host", default="127.0.0.1")
    serve.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    address = f"http://{arguments.host}:{arguments.port}"
    sys.stdout.write(f"Horocycle on {address}\n  docs  {address}/docs\n  try   curl {address}/health/live\n")
    sys.stdout.flush()
    uvicorn.run(create_app(), host=arguments.host, port=arguments.port, log_level="warning")


if __name__ == "__main__":
    main()
