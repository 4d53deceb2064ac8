"""Measurements as ratios against a peer or a floor in the same run; `./dev bench`. Results:
docs/benchmarks.md."""
