"""Settings of hypothesis for all unit tests."""

from __future__ import annotations

from hypothesis import settings

# No deadline: machines of CI are slow at times. No database: a test leaves nothing behind.
settings.register_profile("unit", deadline=None, database=None)
settings.load_profile("unit")
