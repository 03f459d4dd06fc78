"""The router's database: tables, one transaction a batch, and the reports people ask for."""

from .api_key import ApiKey
from .gateway import GatewayStore
from .history import RecentMessages, Turns
from .record import TaskRecord
from .reports import Reports
from .store import Applied, Store

__all__ = ["ApiKey", "Applied", "GatewayStore", "RecentMessages", "Reports", "Store", "TaskRecord", "Turns"]
