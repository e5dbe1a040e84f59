"""``python -m opbuild``: the command line, for where the ``opbuild`` program is not on the path."""

import sys

from opbuild.cli.main import main

sys.exit(main())
