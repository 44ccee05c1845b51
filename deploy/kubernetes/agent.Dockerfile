# The agent beside the interpreter of your jobs; from the root of the project:
#   docker build --file deploy/kubernetes/agent.Dockerfile --build-arg BASE=pytorch/pytorch:TAG --tag hopyard-agent .
# BASE has PyTorch, and Python 3.11 or later.
ARG BASE
FROM $BASE
COPY pyproject.toml README.md LICENSE /src/
COPY schemas /src/schemas
COPY shared /src/shared
COPY services /src/services
COPY loadgen /src/loadgen
COPY hopyard /src/hopyard
COPY hopjob /src/hopjob
RUN python3 -m venv /opt/hopyard && /opt/hopyard/bin/pip install --no-cache-dir '/src[gpu]' && rm -r /src
