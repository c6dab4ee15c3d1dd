"""The error of a verb that cannot do its work, and the exit statuses."""

from __future__ import annotations

from typing import Final

from headrace_common.operations.errors import HeadraceError

EXIT_FAILED: Final = 1
EXIT_NOTHING_RUNS: Final = 3
EXIT_DOUBT: Final = 4


class CommandError(HeadraceError):
    """The verb cannot continue. The message is one sentence for the user; `status` is the exit status of the process."""

    def __init__(self, message: str, *, status: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.status = status
