"""``python -m kinetoscope``: the same as the command ``kinetoscope``."""

import sys

from kinetoscope.cli import main

if __name__ == "__main__":
    sys.exit(main())
