# One image per service, with the dependencies of that service and no others:
#   docker build --build-arg SERVICE=planner --build-arg EXTRAS="--extra planner" .
FROM python:3.11-slim AS base
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 UV_PYTHON_DOWNLOADS=never UV_LINK_MODE=copy
RUN pip install --no-cache-dir "uv>=0.13,<0.14"
WORKDIR /app
COPY pyproject.toml README.md ./
RUN uv sync --no-dev --no-install-project --no-cache
ENV PATH=/app/.venv/bin:$PATH

FROM base
ARG SERVICE
ARG EXTRAS=""
RUN uv sync --no-dev --no-install-project --no-cache $EXTRAS
COPY schemas schemas
COPY shared shared
COPY services services
COPY loadgen loadgen
COPY hopyard hopyard
RUN uv sync --no-dev --no-editable --no-cache $EXTRAS && useradd --create-home hopyard \
    && mkdir /data && chown hopyard /data
USER hopyard
ENV HOPYARD_SERVICE=$SERVICE HOPYARD_WEB_HOST=0.0.0.0 HOPYARD_WEB_PORT=8080
EXPOSE 8080
HEALTHCHECK --interval=5s --timeout=4s --start-period=30s --retries=12 CMD ["python", "-m", "shared.runtime.healthcheck"]
CMD ["sh", "-c", "exec python -m services.$HOPYARD_SERVICE"]
