"""What a verb raises when it cannot do what was asked."""

from __future__ import annotations

from typing import Final

from headrace_common.errors import HeadraceError

EXIT_FAILED: Final = 1
EXIT_NOTHING_RUNS: Final = 3


class CommandError(HeadraceError):
    """The verb cannot go on. The message is one sentence for the user; `status` is the process's exit status."""

    def __init__(self, message: str, *, status: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.status = status
