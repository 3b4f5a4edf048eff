"""Tiny scans as files."""

from support.cases import *  # noqa: F403
