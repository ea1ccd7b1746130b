"""Build the wheel and compare its files with those of the checkout.

setuptools says nothing when no pattern of the package data covers a file.
"""

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def files_of_checkout() -> set[str]:
    """Paths under `src` of every file that git tracks or does not ignore, as they are called in the wheel."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "src/unmask"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split("\0")  # fmt: skip
    return {path.removeprefix("src/") for path in listed if path and (ROOT / path).exists()}


def files_of_wheel(wanted: set[str]) -> set[str]:
    """Paths in a wheel that is built from these files alone: a `build` folder would add deleted ones."""
    with tempfile.TemporaryDirectory(prefix="unmask-wheel-") as folder:
        source = Path(folder) / "source"
        for name in ["pyproject.toml", "README.md", "LICENSE", *(f"src/{path}" for path in wanted)]:
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "wheel", "--wheel-dir", folder]
        # Weights hardly shrink: storing them saves seconds.
        quick = "--config-settings=--build-option=--compression=stored"
        subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--no-index", quick, str(source)], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            return {name for name in archive.namelist() if ".dist-info/" not in name}


def main() -> int:
    wanted = files_of_checkout()
    built = files_of_wheel(wanted)
    for path in sorted(wanted - built):
        print(f"missing in the wheel: {path}; add its pattern to [tool.setuptools.package-data] in pyproject.toml")
    for path in sorted(built - wanted):
        print(f"in the wheel, but not in the checkout: {path}")
    print(f"the wheel has {len(built)} files")
    return int(built != wanted)


if __name__ == "__main__":
    sys.exit(main())
