"""One file a contender, run in its own environment: its worker and its client, doing the same no-op task."""
