"""How much memory a process holds."""

from __future__ import annotations

from pathlib import Path


class Memory:
    """Resident bytes of process `pid` from now on, as Linux counts them: `before`, and the `most` at any moment since."""

    def __init__(self, pid: int) -> None:
        self._folder = Path(f"/proc/{pid}")
        (self._folder / "clear_refs").write_text("5")  # proc(5): the peak is what is held now
        self.before = self.most

    @property
    def most(self) -> int:
        status = dict(line.split(":", 1) for line in (self._folder / "status").read_text().splitlines())
        return int(status["VmHWM"].split()[0]) << 10

    @property
    def grown(self) -> int:
        """Bytes by which the peak is above what was held before."""
        return self.most - self.before
