FROM python:3.11-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY schemas schemas
COPY client client
COPY worker worker
COPY router router
RUN pip wheel --no-cache-dir --wheel-dir /wheels ".[http,router,worker]"

FROM python:3.11-slim
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links=/wheels "skillstream[http,router,worker]"
# a new named volume takes over the owner of the folder that it covers
RUN useradd --system --uid 10001 --no-create-home skillstream && install --directory --owner=skillstream /data
WORKDIR /app
COPY examples examples
USER skillstream
ENTRYPOINT ["skillstream"]
CMD ["--help"]
