# The command `rewritegym` for the CPU, without PyTorch:
#
#   docker build -t rewritegym .
#   docker run --rm -v "$PWD:/work" rewritegym optimize model.onnx
#
# The container's user has the number 1000. Where yours is another, add --user "$(id -u):$(id -g)". `docker stop`
# lets a search check and write what it has found, within its ten seconds.

FROM python:3.11-slim AS build
WORKDIR /source
COPY pyproject.toml setup.py MANIFEST.in README.md LICENSE constraints.txt ./
COPY agents agents
COPY benchmarks benchmarks
COPY checkpoints checkpoints
COPY configs configs
COPY envs envs
COPY graph_rewrite graph_rewrite
COPY known_results known_results
COPY rewritegym rewritegym
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.11-slim
COPY constraints.txt /tmp/constraints.txt
COPY --from=build /wheels /tmp/wheels
RUN pip install --no-cache-dir -c /tmp/constraints.txt /tmp/wheels/*.whl \
    && rm -r /tmp/constraints.txt /tmp/wheels \
    && useradd --uid 1000 --create-home rewritegym \
    && mkdir /cache /work \
    && chmod 1777 /cache /work
# Writable for any user: what was learned about latencies is kept there, in a volume if you mount one.
ENV REWRITEGYM_CACHE=/cache
USER rewritegym
WORKDIR /work
ENTRYPOINT ["rewritegym"]
CMD ["--help"]
