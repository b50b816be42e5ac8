# One image for all services; docs/howto/operate.md says how to run it. Not built by CI.

FROM python:3.13-slim AS wheels
WORKDIR /build
COPY requirements.lock .
# Everything the lock pins, checked against its hashes, as files: the next stage takes what the product needs from them.
RUN pip wheel --no-cache-dir --require-hashes --wheel-dir /wheels -r requirements.lock
COPY . .
RUN pip install --no-cache-dir --no-index --find-links /wheels hatchling \
 && pip wheel --no-cache-dir --no-index --no-deps --no-build-isolation --wheel-dir /wheels .

FROM python:3.13-slim
RUN --mount=type=bind,from=wheels,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links /wheels tidemill \
 && useradd --uid 10001 --user-group --create-home --home-dir /srv/tidemill --shell /usr/sbin/nologin tidemill
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# User modules are found here: copy them in, or mount them, and name them in TIDEMILL_MODULES.
WORKDIR /srv/tidemill
USER tidemill
CMD ["celery", "-A", "app", "worker"]
