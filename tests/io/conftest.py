"""Lets the tests here import their neighbours `scan_samples` and `scan_fuzz`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
