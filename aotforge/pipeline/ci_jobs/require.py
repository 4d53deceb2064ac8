"""The required CI job: passes when every planned job succeeded (standard library only).

Reads GitHub's `toJSON(needs)` from the variable NEEDS. A group of jobs may be skipped only when the plan lists none for it; a
job that was skipped because an earlier one failed or was cancelled makes this one fail.
"""

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

PLAN = "plan"


def problems(needs: Mapping[str, Any]) -> list[str]:
    """Jobs with another result than planned. `needs` is by job: `result`, and the plan's `outputs`."""
    plan, found = needs.get(PLAN, {}), []
    if plan.get("result") != "success":
        return [f"{PLAN}: {plan.get('result', 'did not run')}"]
    outputs = plan.get("outputs", {})
    for name in sorted({*needs, *outputs} - {PLAN}):
        result = needs.get(name, {}).get("result", "did not run")
        try:
            planned = json.loads(outputs[name])
        except (KeyError, TypeError, ValueError):
            found.append(f"{name}: the plan does not list its jobs")
            continue
        wanted = "success" if planned else "skipped"
        if result != wanted:
            found.append(f"{name}: {result}, with {len(planned)} jobs planned")
    return found


def main() -> int:
    """Exit status 1 when there is a problem."""
    try:
        needs = json.loads(os.environ.get("NEEDS", ""))
    except ValueError:
        needs = {}
    found = problems(needs if isinstance(needs, dict) else {})
    sys.stdout.write("\n".join(found or ["every planned job has passed"]) + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
