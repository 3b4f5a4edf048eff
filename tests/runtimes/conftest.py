"""Models and scans for the tests of runtimes."""

from support.models import *  # noqa: F403
