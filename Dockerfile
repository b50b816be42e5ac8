# One image for all services; docs/howto/deploy.md says how it is used. Tests read it, none builds it.

# The full version and not a digest: the digest is that of your registry, and --build-arg PYTHON=3.13.18-slim-trixie@sha256:…
# pins it. With every release of Python a new line here.
ARG PYTHON=3.13.18-slim-trixie

FROM python:${PYTHON} AS wheel
WORKDIR /build
COPY deploy/build.lock deploy/build.lock
RUN pip install --no-cache-dir --require-hashes --only-binary :all: -r deploy/build.lock
COPY . .
RUN pip wheel --no-cache-dir --no-index --no-deps --no-build-isolation --wheel-dir /wheel .

FROM python:${PYTHON} AS installed
WORKDIR /build
COPY deploy/image.lock deploy/image.lock
# Without pip in it: what runs never installs anything.
RUN python -m venv --without-pip /opt/tidemill \
 && pip --python /opt/tidemill/bin/python install --no-cache-dir --require-hashes --only-binary :all: -r deploy/image.lock
COPY --from=wheel /wheel /wheel
RUN pip --python /opt/tidemill/bin/python install --no-cache-dir --no-index --no-deps /wheel/*.whl

FROM python:${PYTHON}
# A number that Kubernetes can check (runAsNonRoot), of nobody on the host.
RUN groupadd --gid 10001 tidemill \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /srv/tidemill --shell /usr/sbin/nologin tidemill
COPY --from=installed /opt/tidemill /opt/tidemill
# Byte code was written when the packages were installed; the file system is read-only when they run.
ENV PATH=/opt/tidemill/bin:$PATH PYTHONPATH=/srv/tidemill PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# User modules are found here: copy them in, or mount them, and name them in TIDEMILL_MODULES.
WORKDIR /srv/tidemill
USER 10001:10001
CMD ["celery", "-A", "app", "worker"]
