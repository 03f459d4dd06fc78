"""The container files fit the project: commands, variables, sources and limits that exist, and no root."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from skillstream.cli.app import build
from skillstream_schemas.settings import Settings
from skillstream_worker.loading import load_agent

ROOT = Path(__file__).parents[1]
DURATION = re.compile(r"(?:(\d+)m)?(?:(\d+)s)?")


def dockerfile_stages() -> list[list[tuple[str, str]]]:
    """The instructions of each stage, continued lines joined."""
    text = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text())
    stages: list[list[tuple[str, str]]] = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        word, rest = line.split(maxsplit=1)
        if word == "FROM":
            stages.append([])
        stages[-1].append((word, rest))
    return stages


def services() -> dict[str, dict[str, Any]]:
    loaded: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    return loaded


def ours() -> dict[str, dict[str, Any]]:
    return {name: service for name, service in services().items() if "build" in service}


def seconds(duration: str) -> int:
    found = DURATION.fullmatch(duration)
    assert found, duration
    return int(found[1] or 0) * 60 + int(found[2] or 0)


def settings_of(service: dict[str, Any]) -> Settings:
    return Settings.from_env(service["environment"])


def test_the_image_runs_the_command_as_an_own_user() -> None:
    stages = dockerfile_stages()
    assert len(stages) == 2
    last = stages[-1]
    words = [word for word, _ in last]
    assert dict(last)["ENTRYPOINT"] == '["skillstream"]'
    assert dict(last)["USER"] not in ("root", "0")
    assert words.count("USER") == 1
    assert max(at for at, word in enumerate(words) if word in ("RUN", "COPY")) < words.index("USER")
    assert re.search(rf"useradd\b.*\b{dict(last)['USER']}\b", " ".join(rest for word, rest in last if word == "RUN"))


def test_the_image_takes_python_extras_and_sources_that_the_project_has() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    runs = [rest for stage in dockerfile_stages() for word, rest in stage if word == "RUN"]
    extras = {extra for run in runs for found in re.findall(r"\[([a-z,]+)\]", run) for extra in found.split(",")}
    assert extras == {"http", "router", "worker"}
    assert extras <= project["project"]["optional-dependencies"].keys()
    copied = {source for word, rest in dockerfile_stages()[0] if word == "COPY" for source in rest.split()[:-1]}
    packages = {package.split("/")[0] for package in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]}
    assert packages | {"pyproject.toml", project["project"]["readme"], *project["project"]["license-files"]} <= copied


def test_everything_copied_exists_and_reaches_the_build() -> None:
    ignored = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("!")]
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert ignored[0] == "*"
    for stage in dockerfile_stages():
        for word, rest in stage:
            for source in rest.split()[:-1] if word == "COPY" else ():
                assert (ROOT / source).exists()
                assert source in kept
    for private in (".git", ".venv", ".env", "skillstream.db"):
        assert not any(fnmatch(private, pattern) for pattern in kept)


@pytest.mark.parametrize("file", ["Dockerfile", "docker-compose.yml"])
def test_files_hold_no_secret_and_no_address_of_a_registry(file: str) -> None:
    text = (ROOT / file).read_text().lower()
    for word in ("password", "secret", "token", "index-url", "https://", "http://"):
        assert word not in text


def test_images_are_pinned() -> None:
    images = [service["image"] for service in services().values()]
    images += [rest.split()[0] for stage in dockerfile_stages() for word, rest in stage if word == "FROM"]
    assert len(images) == 6
    for image in images:
        name, _, tag = image.partition(":")
        assert name
        assert tag not in ("", "latest")


def test_variables_are_settings_and_have_values_that_can_be_used() -> None:
    for service in ours().values():
        for name in service["environment"]:
            assert name.removeprefix("SKILLSTREAM_").lower() in Settings.model_fields, name
        assert settings_of(service).redis_url == "redis://redis:6379/0"


@pytest.mark.parametrize("name", ["router", "http"])
def test_the_database_of_the_router_is_on_its_volume(name: str) -> None:
    router = services()[name]
    folder = router["volumes"][0].split(":")[1]
    assert settings_of(router).database_url.startswith(f"sqlite:///{folder}/")
    assert f"--owner={dict(dockerfile_stages()[-1])['USER']} {folder}" in (ROOT / "Dockerfile").read_text()


def test_the_worker_can_be_scaled_and_has_time_to_end_its_tasks() -> None:
    worker = services()["worker"]
    assert not worker.keys() & {"container_name", "ports", "volumes", "hostname"}
    assert seconds(worker["stop_grace_period"]) >= settings_of(worker).grace_s + 5


def test_only_the_gateway_takes_a_port_of_the_machine_and_only_where_it_is_asked_for() -> None:
    assert [name for name, service in services().items() if "ports" in service] == ["http"]
    gateway = services()["http"]
    assert gateway["profiles"] == ["http"]
    address = settings_of(gateway).http_address
    assert address is not None
    assert gateway["ports"] == [f"127.0.0.1:{address[1]}:{address[1]}"]


def test_services_start_behind_a_broker_that_is_healthy_and_keeps_its_data() -> None:
    assert ours().keys() == {"http", "router", "worker"}
    for service in ours().values():
        assert service["depends_on"] == {"redis": {"condition": "service_healthy"}}
    redis = services()["redis"]
    assert redis["healthcheck"]["test"][-1] == "ping"
    command = redis["command"]
    assert command[command.index("--appendonly") + 1] == "yes"
    assert command[command.index("--maxmemory-policy") + 1] == "noeviction"
    assert redis["volumes"][0].endswith(":/data")


def test_named_volumes_are_declared() -> None:
    declared = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["volumes"]
    used = {volume.split(":")[0] for service in services().values() for volume in service.get("volumes", ())}
    assert used == declared.keys()


def test_services_run_commands_that_exist_on_an_agent_that_exists() -> None:
    app, missing = build()
    assert not missing
    group: Any = typer.main.get_command(app)
    for service in ours().values():
        name, *arguments = service["command"]
        command = group.commands[name]
        command.make_context(name, arguments)  # raises where an argument or option does not exist
    assert load_agent(services()["worker"]["command"][-1]).skills.keys() >= {"research", "summarize", "draft"}
