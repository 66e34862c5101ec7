"""What the runners of documentation pages share: the code blocks of a page, and packages at fixed versions.

    python3 sdks/doc_pages.py PAGE FOLDER    writes each block with `file=NAME` to FOLDER/NAME
"""

import re
import subprocess
import sys
from pathlib import Path

BLOCK = re.compile(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page):
    """(language, name of the file or an empty text, content) of each code block."""
    return BLOCK.findall(Path(page).read_text())


def write_file(folder, name, text):
    file = Path(folder, name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def write_files(page, folder):
    for _, name, text in blocks(page):
        if name:
            write_file(folder, name, text)


def install_python(packages, folder):
    """A virtual environment with these packages from PyPI, unless it is there."""

    def fill():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        pip = [folder / "bin/pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *packages], check=True)

    install(packages, folder, fill)


def install_node(packages, folder):
    """A folder with these packages from npm, unless it is there."""

    def fill():
        (folder / "package.json").write_text('{"private": true, "type": "module"}\n')
        quiet = ["--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund", "--legacy-peer-deps"]
        subprocess.run(["npm", "install", *quiet, *packages], cwd=folder, check=True)

    install(packages, folder, fill)


def install(packages, folder, fill):
    mark, wanted = folder / "installed", " ".join(packages)
    if mark.exists() and mark.read_text() == wanted:
        return
    folder.mkdir(parents=True, exist_ok=True)
    fill()
    mark.write_text(wanted)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    write_files(sys.argv[1], sys.argv[2])
