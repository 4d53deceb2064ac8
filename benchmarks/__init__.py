"""Measurements as ratios against a peer or a floor in the same run; `invoke bench`. Results: docs/benchmarks.md."""
