"""The command line: a stack on one machine, and verbs that look at one."""

import os

os.environ.setdefault("TYPER_USE_RICH", "0")  # to import Rich takes longer than all else that a help needs
