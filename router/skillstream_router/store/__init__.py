"""The router's database: tables, one transaction a batch, and the reports people ask for."""

from .history import RecentMessages, Turns
from .record import TaskRecord
from .reports import Reports
from .store import Applied, Store

__all__ = ["Applied", "RecentMessages", "Reports", "Store", "TaskRecord", "Turns"]
