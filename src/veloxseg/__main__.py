"""`python -m veloxseg` is `veloxseg`."""

import sys

from veloxseg.cli import main

sys.exit(main())
