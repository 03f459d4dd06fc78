"""Examples that run: an agent that works on real files, and the whole system in one script."""
