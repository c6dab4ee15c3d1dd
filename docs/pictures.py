"""Takes the pictures of the live page from a stack of its own: ``python docs/pictures.py``. It needs Chromium, and some minutes.

Beside each picture is what it says, a text a line: a test looks for each in the code.
"""

from __future__ import annotations

import html
import json
import os
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final
from urllib.request import urlopen

from headrace_cli.ground import module
from headrace_cli.wire.target import CLIENTS

PICTURES: Final = Path(__file__).with_suffix("")
WIDE, PHONE = "1440,1300", "390,1560"
BROWSER: Final = ("chromium", "--headless", "--no-sandbox", "--disable-lcd-text", "--hide-scrollbars", "--dump-dom")


def run(*words: str, state: str) -> subprocess.Popen[bytes]:
    """Begins a verb on a state folder."""
    return subprocess.Popen([*module("headrace_cli"), *words, "--state", state], stdout=subprocess.DEVNULL)


def take(name: str, url: str, size: str, *options: str) -> None:
    """Writes the picture of a page after three seconds of its own time, and the texts of its verdict and channel."""
    shot = (f"--screenshot={PICTURES / name}.webp", f"--window-size={size}", "--virtual-time-budget=3000")
    page = subprocess.run([*BROWSER, *options, *shot, url], check=True, capture_output=True, text=True).stdout
    shown = page[page.index('<section id="verdict"') : page.index("<noscript>")]
    shown += page[page.index('<section id="channel"') : page.index('<section id="charts"')]
    lines = (" ".join(html.unescape(text).split()) for text in re.split(r"<[^>]+>", shown))
    (PICTURES / f"{name}.txt").write_text("\n".join(filter(None, lines)) + "\n")


def main() -> None:
    """Runs a stack, sends to it, and stops its Kafka for a while."""
    with tempfile.TemporaryDirectory() as folder:
        state, senders = f"{folder}/state", []
        try:
            run("up", "--detach", "--any-port", state=state).wait()
            record = json.loads(Path(state, "run", "stack.json").read_text())
            page, kafka = record["live"], record["parts"]["kafka"]["pid"]
            for rate, protocol in enumerate(sorted(CLIENTS), 1):
                load = ("--rate", str(15 * rate), "--for", "1h", "--connections", "2", "--batch", "20")
                senders.append(run("send", protocol, *load, state=state))
            while "; landed " not in json.load(urlopen(page + "state.json"))["verdict"][0]["text"]:  # noqa: S310  (http)
                time.sleep(1)
            take("live-phone", page, PHONE)
            os.kill(kafka, signal.SIGSTOP)
            time.sleep(18)
            take("live-stopped", page, WIDE)
            os.kill(kafka, signal.SIGCONT)
            time.sleep(3)
            take("live-dark", page, WIDE, "--force-dark-mode")
        finally:
            for sender in senders:
                sender.kill()
            run("down", "--purge", state=state).wait()


if __name__ == "__main__":
    main()
