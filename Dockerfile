# syntax=docker/dockerfile:1
# Horocycle: the service, the fit worker and the simulator in one image. docs/container.md says how it was tried.

FROM python:3.11-slim AS build
# Of no particular processor, so that what is compiled here is found good wherever it runs.
ENV NUMBA_CPU_NAME=generic \
    NUMBA_CACHE_DIR=/var/cache/horocycle \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1
WORKDIR /build
RUN python -m venv /opt/horocycle
# What it depends on changes seldom, and is a layer of its own.
COPY requirements.txt ./
RUN /opt/horocycle/bin/pip install --require-hashes --no-deps --requirement requirements.txt
COPY LICENSE README.md pyproject.toml ./
COPY horocycle horocycle
COPY service service
COPY clients clients
RUN /opt/horocycle/bin/pip install --no-deps --no-build-isolation .
RUN mkdir -p /var/cache/horocycle && cd / && /opt/horocycle/bin/python -c "import service.learners, service.sessions.fast_json"

FROM python:3.11-slim
ENV PATH=/opt/horocycle/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    NUMBA_CPU_NAME=generic \
    NUMBA_CACHE_DIR=/var/cache/horocycle \
    HOROCYCLE_HOST=0.0.0.0 \
    HOROCYCLE_PORT=8000 \
    HOROCYCLE_DATA=/var/lib/horocycle
COPY --from=build /opt/horocycle /opt/horocycle
# Numba reads its cache only where it may write.
COPY --from=build --chown=10001:10001 /var/cache/horocycle /var/cache/horocycle
RUN install --directory --owner=10001 --group=10001 --mode=0700 /var/lib/horocycle
USER 10001:10001
WORKDIR /var/lib/horocycle
EXPOSE 8000
HEALTHCHECK --interval=5s --timeout=4s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ['HOROCYCLE_PORT'] + '/health/ready', timeout=3)"]
CMD ["python", "-m", "service", "serve"]
