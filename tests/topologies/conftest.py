"""One cluster for all tests here: whole again before each of them, and empty."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from skillstream_schemas.settings import Settings
from tests.conftest import make_settings
from tests.topologies.cluster import ValkeyCluster, valkey_cluster


@pytest.fixture(scope="session")
def started_cluster() -> Iterator[ValkeyCluster]:
    """The six processes."""
    with valkey_cluster() as started:
        yield started


@pytest.fixture
def cluster(started_cluster: ValkeyCluster) -> ValkeyCluster:
    """The cluster, whole and empty."""
    started_cluster.mend()
    for node in started_cluster.primaries():
        node.ask("FLUSHALL")
        node.ask("CONFIG", "RESETSTAT")
    return started_cluster


@pytest.fixture
def cluster_outside(cluster: ValkeyCluster) -> Iterator[Any]:
    """redis-py's client of the cluster."""
    client = cluster.outside()
    yield client
    cast(Any, client).close()


@pytest.fixture
def cluster_settings(cluster: ValkeyCluster, tmp_path: Path) -> Settings:
    """Settings of all parts on the cluster."""
    database = f"sqlite:///{tmp_path / 'router.db'}"
    return make_settings(cluster.url, database_url=database, lease_s=3, patience_s=20, connect_timeout_s=2)
