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
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final

from headrace_cli.ground import ROOT

from tests.gate.running import KINDS, Copy, copied
from tests.gate.source import Mutant, first, ordered

FOLDERS: Final = (
    "cli", "libs/common", "libs/reader", "live", "services/courier", "services/forward", "services/logjam",
    "services/lumberjack", "services/segment", "spark_jobs",
)  # fmt: skip
LEAST: Final = 12
"""Mutants of the smallest folder, if there are enough for all."""
BAR: Final = Path(__file__).with_name("bar.json")


def sample(folders: list[str], count: int, seed: int) -> dict[int, Mutant]:
    """Returns numbered mutants, of each folder as its size is."""
    found = {folder: ordered(ROOT, folder, seed) for folder in folders}
    least = min(LEAST, count // len(folders))
    share = (count - least * len(folders)) / sum(map(len, found.values()))
    chosen = [mutant for each in found.values() for mutant in first(ROOT, each, least + round(share * len(each)))]
    return dict(enumerate(chosen, 1))


def judged(copy: Copy, number: int, mutant: Mutant, every_kind: bool) -> dict[str, Any]:
    """Returns a mutant's line of the results: the first kind of tests that kills it, and what each kind has said."""
    began, tests, by = time.monotonic(), {}, {}
    for kind in KINDS:
        if chosen := copy.chosen(number, kind):
            tests[kind], by[kind] = chosen, copy.judge(number, chosen)
            if by[kind][0] == "killed" and not every_kind:
                break
    result = next((kind for kind, said in by.items() if said[0] == "killed"), "survived" if by else "no test")
    line = {"number": number, **asdict(mutant), "result": result, "seconds": round(time.monotonic() - began, 1)}
    print(shown(line), flush=True)
    return {**line, "by": by, "tests": tests}


def shown(line: dict[str, Any]) -> str:
    old, new = (" ".join(line[side].split())[:90] for side in ("old", "new"))
    where = f"{line['file']}:{line['line']} {line['kind']}: {old}{' → ' + new if new else ''}"
    return f"{line['number']:4} {line['result']:10} {line['seconds']:6.1f} s  {where}"


def table(lines: list[dict[str, Any]]) -> dict[str, list[int]]:
    """Prints what became of the mutants of each folder, and who is alive; returns how many were killed, of how many."""
    columns = (*KINDS, "survived", "no test")
    print(f"\n{'':20} mutants  killed  {''.join(f'{name:>12}' for name in columns)}")
    found = {}
    for folder in FOLDERS:
        results = Counter(line["result"] for line in lines if line["file"].startswith(f"{folder}/"))
        if total := results.total():
            found[folder] = [sum(results[kind] for kind in KINDS), total]
            print(f"{folder:20} {total:7} {found[folder][0]:7}  {''.join(f'{results[name]:12}' for name in columns)}")
    print("\nalive:", *(shown(line) for line in lines if line["result"] not in KINDS), sep="\n")
    return found


def again(folder: Path, line: dict[str, Any]) -> int:
    """Runs a mutant of earlier results with its tests, and shows what pytest says."""
    mutant = Mutant(**{each.name: line[each.name] for each in fields(Mutant)})
    text = (ROOT / mutant.file).read_bytes()
    assert text[mutant.start : mutant.end].decode() == mutant.old, f"{mutant.file} has changed since"
    tests = [test for chosen in line["tests"].values() for test in chosen]
    return copied(folder, {line["number"]: mutant}).pytest("-x", *tests, MUTANT=str(line["number"]))[0]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gate", description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="how many mutants (300)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (1)")
    parser.add_argument("--folder", action="append", choices=FOLDERS, help="of these folders alone; may be repeated")
    parser.add_argument(
        "--workers", type=int, default=2, help="how many mutants at once (2); the first run takes one more"
    )
    parser.add_argument("--kinds", action="store_true", help="run all kinds of tests, also after one that kills")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build/mutants.json", help="the results (build/mutants.json)"
    )
    parser.add_argument(
        "--only", type=int, metavar="NUMBER", help="run that mutant of --out again and show what pytest says"
    )
    parser.add_argument("--record", action="store_true", help="make these shares the bar")
    given, selection = parser.parse_known_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gate-") as folder:
        if given.only:
            return again(Path(folder), json.loads(given.out.read_text())["mutants"][given.only - 1])
        numbered = sample(given.folder or list(FOLDERS), given.count, given.seed)
        copy = copied(Path(folder), numbered)
        copy.look(given.workers + 1, selection)
        first_run = time.monotonic() - began
        failed = [test for test, kind in copy.kinds.items() if kind == "failed"]
        print(f"first run: {first_run:.0f} s, {len(copy.kinds)} tests, left out as they failed: {failed}")
        pool = ThreadPoolExecutor(given.workers)
        try:
            ends = [pool.submit(judged, copy, *pair, given.kinds) for pair in numbered.items()]
            lines = [end.result() for end in ends]
        finally:
            pool.shutdown(cancel_futures=True)
    found = table(lines)
    head = {
        "seed": given.seed,
        "seconds": round(time.monotonic() - began),
        "first_run": round(first_run),
        "failed": failed,
    }
    print("\n", head, sep="")
    given.out.parent.mkdir(exist_ok=True)
    given.out.write_text(json.dumps({**head, "folders": found, "mutants": lines}, indent=1))
    bar = json.loads(BAR.read_text())
    low = [
        each for each, (killed, total) in found.items() if each in bar and killed * bar[each][1] < bar[each][0] * total
    ]
    for each in low:
        print(f"{each}: {found[each]} killed, the bar is {bar[each]}")
    if given.record:
        BAR.write_text(json.dumps({**bar, **found}, sort_keys=True) + "\n")
    return 1 if low and not given.record else 0


if __name__ == "__main__":
    sys.exit(main())
