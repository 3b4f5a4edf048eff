"""Tiny scans as files, and what is written in pictures."""

from support.cases import *  # noqa: F403
from support.pictures import *  # noqa: F403
