"""``python -m hatch_torch_ext``: the command line."""

import sys

from hatch_torch_ext.cli import main

sys.exit(main())
