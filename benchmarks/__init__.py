"""Measures this project beside its peers and its ceilings: `python -m benchmarks`, described in docs/performance.md."""
