"""`python -m tests.mutation [MODULE…]`: all cores, or these. Fails where a mutant survives that is not known to be
the same program, and where one that is known is not there any more, or is noticed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.mutation.cores import CORES, MERGE_RULE, OF_MERGE_RULE
from tests.mutation.equivalent import EQUIVALENT

ROOT = Path(__file__).parents[2]


def fates(module: str) -> dict[str, str]:
    with TemporaryDirectory() as folder:
        told = Path(folder, "fates.json")
        if module == MERGE_RULE:
            words = ["tests.mutation.sql_plugin", *OF_MERGE_RULE]
        else:
            words = ["tests.mutation.plugin", "--mutate", module, *CORES[module]]
        command = [sys.executable, "-m", "pytest", "-q", "--told", str(told), "-p", *words]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if not told.exists():
            raise SystemExit(f"{module}: pytest ended with {ran.returncode}\n{ran.stdout[-4000:]}{ran.stderr[-4000:]}")
        found: dict[str, str] = json.loads(told.read_text())
        return found


def main(modules: list[str]) -> int:
    wrong = 0
    print(f"{'module':24} mutants  killed  equivalent  survived")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for done in as_completed(running := {pool.submit(fates, each): each for each in modules}):
            module, found = running[done], done.result()
            known, counts = EQUIVALENT.get(module, {}), Counter(found.values())
            left = {key: fate for key, fate in found.items() if fate != "killed"}
            new, gone = {key: fate for key, fate in left.items() if key not in known}, known.keys() - left.keys()
            same = len(left) - len(new)
            print(f"{module:24} {len(found):7} {counts['killed']:7} {same:11} {len(new):9}", flush=True)
            for key, fate in new.items():
                print(f"    {fate}: {key}")
            for key in gone:
                print(f"    stands among the equivalent ones, and is noticed, or is none: {key}")
            wrong += len(new) + len(gone)
    return 1 if wrong else 0


if __name__ == "__main__":
    asked, every = sys.argv[1:], [MERGE_RULE, *CORES]
    if unknown := [each for each in asked if each not in every]:
        raise SystemExit(f"{', '.join(unknown)}: no core; write some of {', '.join(every)}")
    raise SystemExit(main(asked or every))
