"""Command line: each task reads its flags, calls one function and prints the result.

Input: flags. Output: text, or JSON with `--json`, and an exit code. `tasks.py` collects the `TASKS` of each module.
"""
