# One image per service, with the dependencies of that service and no others:
#   docker build --build-arg SERVICE=planner --build-arg LIBRARIES=planner .
# What all have in common comes first, so it is built and stored once.
# The folders on which volumes are mounted exist, and are hopyard's: Docker makes a missing one root's.
FROM python:3.11-slim AS base
ENV PATH=/app/.venv/bin:$PATH PYTHONUNBUFFERED=1 UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy UV_NO_CACHE=1 \
    UV_PYTHON_DOWNLOADS=never UV_SYSTEM_CERTS=1 OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
RUN pip install --no-cache-dir --root-user-action ignore "uv>=0.13,<0.14" \
    && useradd --create-home hopyard && install -d -o hopyard /data /data/output
WORKDIR /app
COPY pyproject.toml ./
RUN uv sync --only-group process

FROM base AS wheel
COPY README.md LICENSE ./
COPY schemas schemas
COPY shared shared
COPY services services
COPY loadgen loadgen
COPY hopyard hopyard
COPY hopjob hopjob
RUN uv build --wheel --out-dir /dist

FROM base AS installed
# A dependency group of pyproject.toml; those of the other services stay out.
ARG LIBRARIES=process
RUN uv sync --only-group $LIBRARIES
COPY --from=wheel /dist /dist
RUN uv pip install --no-deps /dist/*.whl
COPY loadgen/clusters clusters
USER hopyard

# The command line; what follows the image's name are its arguments.
FROM installed AS cli
ENTRYPOINT ["hopyard"]

FROM installed AS service
ARG SERVICE
ENV HOPYARD_SERVICE=$SERVICE HOPYARD_WEB_HOST=0.0.0.0 HOPYARD_WEB_PORT=8080
EXPOSE 8080
HEALTHCHECK --interval=3s --timeout=5s --start-period=30s --retries=5 CMD ["python", "-P", "-m", "shared.runtime.process.healthcheck"]
# The service takes the shell's place as process 1, and ends on SIGTERM.
CMD ["sh", "-c", "exec python -P -m services.$HOPYARD_SERVICE"]
