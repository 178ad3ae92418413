# Both stages stand on the same image, so that the environment runs where it is copied to.
ARG IMAGE=python:3.13-slim-bookworm

FROM ${IMAGE} AS environment
COPY requirements.lock /
RUN python -m venv /venv \
    && /venv/bin/python -m pip install --no-cache-dir --disable-pip-version-check \
        --require-hashes -r /requirements.lock \
    && /venv/bin/python -m pip uninstall --yes --quiet pip

FROM ${IMAGE}
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates git \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 forge \
    && useradd --uid 10001 --gid forge --home-dir /data --no-create-home --shell /usr/sbin/nologin forge \
    && install --directory --owner forge --group forge --mode 0700 /data
COPY --from=environment /venv /venv
COPY . /forge
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 FORGE_DATA_DIR=/data
WORKDIR /forge
# Compiled here, because the account that runs Forge cannot write beside the sources.
RUN python -m compileall -q .
USER 10001:10001
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
CMD ["python", "-m", "forge.web", "--host", "0.0.0.0"]
