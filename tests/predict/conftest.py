"""Models and scans for the tests of prediction."""

from support.models import *  # noqa: F403
