#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The shared library exports exactly the functions that the public headers mark, and needs no GPU library.

  check_exports.py LIBRARY HEADER_FOLDER
"""
import os
import re
import subprocess
import sys


def declared(folder):
    """Names of functions declared ANYATTN_API."""
    names = set()
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".h"):
            continue
        with open(os.path.join(folder, name), encoding="utf-8") as f:
            text = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
        names |= set(re.findall(r"^ANYATTN_API[^;(]*?(anyattn_\w+)\(", text, flags=re.M))
    return names


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main():
    library, folder = sys.argv[1:]
    wanted = declared(folder)
    exported = {line.split()[-1] for line in run("nm", "-D", "--defined-only", library).splitlines()}
    needed = re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", library))
    print(f"{len(exported)} symbols; needs {' '.join(needed)}")
    failures = [f"declared, not exported: {name}" for name in sorted(wanted - exported)]
    failures += [f"exported, not declared: {name}" for name in sorted(exported - wanted)]
    failures += [f"needs a device library: {name}" for name in needed if re.search(r"cuda|nv|hip|hsa|OpenCL|ze_|omp", name)]
    if len(wanted) < 20:
        failures.append(f"only {len(wanted)} declarations found in {folder}")
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
