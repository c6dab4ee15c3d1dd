"""``python -m tests.gate``: puts small faults into a copy of the checkout, and says how many of them the quick tests notice.

Each fault, a mutant, is in the copy behind a switch: one run of the tests says which of them come by which mutant, and then those
run with it active. Other arguments go to pytest in the first run. Status 1: a smaller share of a folder's is killed than
`bar.json` says.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final

from headrace_cli.ground import ROOT

from tests.gate.running import Copy, copied
from tests.gate.source import Mutant, first, ordered

FOLDERS: Final = (
    "cli", "libs/common", "libs/reader", "live", "services/courier", "services/forward", "services/logjam",
    "services/lumberjack", "services/segment", "spark_jobs",
)  # fmt: skip
LEAST: Final = 12
"""Mutants of the smallest folder, if there are enough for all."""
BAR: Final = Path(__file__).with_name("bar.json")
OUT: Final = ROOT / "build/mutants.json"
"""The results of the last run."""


def sample(folders: list[str], count: int, seed: int) -> dict[int, Mutant]:
    """Returns numbered mutants, of each folder as its size is."""
    found = {folder: ordered(ROOT, folder, seed) for folder in folders}
    least = min(LEAST, count // len(folders))
    share = (count - least * len(folders)) / sum(map(len, found.values()))
    chosen = [mutant for each in found.values() for mutant in first(ROOT, each, least + round(share * len(each)))]
    return dict(enumerate(chosen, 1))


def judged(copy: Copy, number: int, mutant: Mutant) -> dict[str, Any]:
    """Returns a mutant's line of the results."""
    began, tests = time.monotonic(), copy.chosen(number)
    result, by = copy.judge(number, tests) if tests else ("no test", "")
    line = {"number": number, **asdict(mutant), "result": result, "seconds": round(time.monotonic() - began, 1)}
    print(shown(line), flush=True)
    return {**line, "by": by, "tests": tests}


def shown(line: dict[str, Any]) -> str:
    old, new = (" ".join(line[side].split())[:90] for side in ("old", "new"))
    where = f"{line['file']}:{line['line']} {line['kind']}: {old}{' → ' + new if new else ''}"
    return f"{line['number']:4} {line['result']:10} {line['seconds']:6.1f} s  {where}"


def table(lines: list[dict[str, Any]]) -> dict[str, list[int]]:
    """Prints what became of the mutants of each folder, and who is alive; returns how many were killed, of how many."""
    found = {}
    print(f"\n{'':20} mutants  killed")
    for folder in FOLDERS:
        if results := [line["result"] for line in lines if line["file"].startswith(f"{folder}/")]:
            found[folder] = [results.count("killed"), len(results)]
            print(f"{folder:20} {len(results):7} {found[folder][0]:7}")
    print("\nalive:", *(shown(line) for line in lines if line["result"] != "killed"), sep="\n")
    return found


def again(folder: Path, line: dict[str, Any]) -> int:
    """Runs a mutant of earlier results with its tests, and shows what pytest says."""
    mutant = Mutant(**{each.name: line[each.name] for each in fields(Mutant)})
    text = (ROOT / mutant.file).read_bytes()
    assert text[mutant.start : mutant.end].decode() == mutant.old, f"{mutant.file} has changed since"
    return copied(folder, {line["number"]: mutant}).pytest("-x", *line["tests"], MUTANT=str(line["number"]))[0]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gate", description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="how many mutants (300)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (1)")
    parser.add_argument("--folder", action="append", choices=FOLDERS, help="of these folders alone; may be repeated")
    parser.add_argument(
        "--workers", type=int, default=2, help="how many mutants at once (2); the first run takes one more"
    )
    parser.add_argument(
        "--only", type=int, metavar="NUMBER", help="run that mutant of the last results again and show what pytest says"
    )
    parser.add_argument("--record", action="store_true", help="make these shares the bar")
    given, selection = parser.parse_known_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gate-") as folder:
        if given.only:
            return again(Path(folder), json.loads(OUT.read_text())["mutants"][given.only - 1])
        numbered = sample(given.folder or list(FOLDERS), given.count, given.seed)
        copy = copied(Path(folder), numbered)
        copy.look(given.workers + 1, selection)
        first_run = time.monotonic() - began
        print(f"first run: {first_run:.0f} s, {len(copy.seconds)} tests, left out as they failed: {copy.failed}")
        pool = ThreadPoolExecutor(given.workers)
        try:
            ends = [pool.submit(judged, copy, *pair) for pair in numbered.items()]
            lines = [end.result() for end in ends]
        finally:
            pool.shutdown(cancel_futures=True)
    found = table(lines)
    print(f"\n{time.monotonic() - began:.0f} s")
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps({"seed": given.seed, "folders": found, "mutants": lines}, indent=1))
    bar = json.loads(BAR.read_text())
    low = [each for each, (killed, total) in found.items() if killed * bar[each][1] < bar[each][0] * total]
    for each in low:
        print(f"{each}: {found[each]} killed, the bar is {bar[each]}")
    if given.record:
        BAR.write_text(json.dumps({**bar, **found}, sort_keys=True) + "\n")
    return 1 if low and not given.record else 0


if __name__ == "__main__":
    sys.exit(main())
