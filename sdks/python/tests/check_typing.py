"""Runs mypy and pyright over typing_cases.py: they must complain of the lines marked `wrong` and of no others.

python check_typing.py PYRIGHT
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

CASES = Path(__file__).with_name("typing_cases.py")


def main() -> None:
    wrong = {n for n, line in enumerate(CASES.read_text().splitlines(), 1) if "# wrong" in line}
    mypy = subprocess.run([sys.executable, "-m", "mypy", "--strict", str(CASES)], capture_output=True, text=True)
    by_mypy = {int(n) for n in re.findall(rf"{CASES.name}:(\d+): error", mypy.stdout)}
    command = [sys.argv[1], "--outputjson", "--pythonpath", sys.executable, str(CASES)]
    pyright = subprocess.run(command, capture_output=True, text=True)
    told = json.loads(pyright.stdout)["generalDiagnostics"]
    by_pyright = {one["range"]["start"]["line"] + 1 for one in told if one["severity"] == "error"}
    for name, found, output in (("mypy", by_mypy, mypy.stdout), ("pyright", by_pyright, json.dumps(told, indent=1))):
        if found != wrong:
            sys.exit(f"{name} complains of lines {sorted(found)}, wanted {sorted(wrong)}\n{output}")
    print(f"mypy and pyright complain of {len(wrong)} lines and of no others")


main()
