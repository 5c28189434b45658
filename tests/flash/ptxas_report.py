#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads what ptxas said of every kernel: ptxas_report.py REPORT...

Kernels named in LIMITS keep to their spill bytes; the others spill nothing. Prints the table.
"""
import re
import sys

ENTRY = re.compile(r"Compiling entry function '(\S+)' for '(\w+)'")
SPILL = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
# (two parts of the mangled name, most spill bytes stored): the reason beside it.
LIMITS = [
    ("merge", "", 16),  # short kernels that nvcc holds at 32 registers: a few bytes outside their loops
    ("sm806attend", "hLi", 288),  # 8-bit codes: a tile is widened between two barriers, with nothing else alive but the sums
    ("sm806attend", "Lb1E", 128),  # prefill at 255 registers, so that two blocks share a multiprocessor; loop invariants only
]


def kernels(path):
    name = arch = spill = None
    with open(path, encoding="utf-8") as f:
        for line in f:
            if m := ENTRY.search(line):
                name, arch = m.groups()
            elif m := SPILL.search(line):
                spill = int(m.group(1))
            elif (m := USED.search(line)) and name:
                yield name, arch, int(m.group(1)), spill
                name = None


def main():
    problems = []
    count = 0
    for path in sys.argv[1:]:
        found = list(kernels(path))
        if not found:
            problems.append(f"{path}: no kernel in the report")
        for name, arch, registers, spill in found:
            count += 1
            allowed = max([most for part, flag, most in LIMITS if part in name and flag in name], default=0)
            print(f"{arch} {registers:4} registers {spill:4} bytes spilled  {name}")
            if spill > allowed:
                problems.append(f"{name} ({arch}): {spill} bytes spilled; allowed: {allowed}")
    print("\n".join(problems))
    print(f"{count} kernels, {len(problems)} problems")
    return 1 if problems or not count else 0


if __name__ == "__main__":
    sys.exit(main())
