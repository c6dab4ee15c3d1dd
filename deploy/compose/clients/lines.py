"""``python lines.py FILE``: writes a line a second, for Filebeat; starts the file again when it has 10 MB."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

LARGEST: Final = 10_000_000


def main(path: Path) -> None:
    """Never returns."""
    number = 0
    while True:
        full = path.exists() and path.stat().st_size > LARGEST
        with path.open("w" if full else "a") as lines:
            lines.write(f"{datetime.now(UTC).isoformat()} line {number} of the file\n")
        number += 1
        time.sleep(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
