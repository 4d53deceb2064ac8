"""Settings for every test: no property test fails because a machine is slow, and CI draws the same examples each time."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile("project", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("project-ci", settings.get_profile("project"), derandomize=True, database=None)
settings.load_profile("project-ci" if os.environ.get("CI") else "project")
