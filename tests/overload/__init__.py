"""More than a part can take at once: everything waits, and nothing is skipped."""
