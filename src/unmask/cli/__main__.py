"""`python -m unmask.cli`."""

import sys

from unmask.cli.app import main

sys.exit(main())
