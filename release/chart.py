#!/usr/bin/env python3
"""Packages the Helm chart, and publishes it as an OCI artefact if a registry is named.

python release/chart.py dist
python release/chart.py dist --registry HOST/PATH    Helm must have logged in there
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path
from typing import Final

CHART: Final = Path(__file__).resolve().parents[1] / "deploy" / "helm" / "headrace"


def main() -> None:
    """Does what the arguments ask for. Raises `subprocess.CalledProcessError` if Helm fails."""
    parser = argparse.ArgumentParser(description="Packages the Helm chart.")
    parser.add_argument("dist", type=Path, help="the folder for the package")
    parser.add_argument("--registry", metavar="HOST/PATH")
    given = parser.parse_args()
    given.dist.mkdir(parents=True, exist_ok=True)
    subprocess.run(["helm", "lint", "--quiet", str(CHART)], check=True)
    subprocess.run(["helm", "package", str(CHART), "--destination", str(given.dist)], check=True)
    if given.registry:
        (package,) = given.dist.glob("headrace-*.tgz")
        subprocess.run(["helm", "push", str(package), f"oci://{given.registry}"], check=True)


if __name__ == "__main__":
    main()
