"""What /openapi.json says beside the endpoints: how callers say who they are, so that /docs can be used with a key."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

_SCHEMES: dict[str, dict[str, str]] = {
    "key": {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key (`skillstream keys create`), or a read token of a task",
    },
    "key header": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "The same in a header of its own"},
    "read token": {"type": "apiKey", "in": "query", "name": "token", "description": "A read token: a task and its events alone"},
}
_KEYLESS = ("/", "/healthz")
_BY_TOKEN = ("/v1/tasks/{task_id}", "/v1/tasks/{task_id}/events")


class DescribedApi(FastAPI):
    """Responsible for the schema of the API; an open gateway asks for no key, which `{}` stands for."""

    def openapi(self) -> dict[str, Any]:
        """The schema, made once."""
        if self.openapi_schema is None:
            schema = super().openapi()
            schema.setdefault("components", {})["securitySchemes"] = _SCHEMES
            keys: list[dict[str, list[str]]] = [{"key": []}, {"key header": []}, {}]
            schema["security"] = keys
            for path in _KEYLESS:
                schema["paths"][path]["get"]["security"] = []
            for path in _BY_TOKEN:
                schema["paths"][path]["get"]["security"] = [{"read token": []}, *keys]
        assert self.openapi_schema is not None
        return self.openapi_schema
