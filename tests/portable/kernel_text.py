#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the one kernel text of plugins/portable without a device.

  kernel_text.py ROOT lines            the kernels stay within 830 lines that are neither blank nor comment, the codes of
                                       quantised rows within 125
  kernel_text.py ROOT objects CLANG    they compile for AMD's targets, and no kernel spills a vector register
"""
import os
import re
import subprocess
import sys
import tempfile

MOST_LINES = {"kernels": 830, "formats.inl": 125}
TARGETS = ("gfx90a", "gfx942", "gfx1100")
KERNELS = ("attend.inl", "plan.inl", "memory.inl", "entries.inl", "shared.h", "formats.inl")
# Config and Tile in the order of shared.h: head 128, 4 query heads a kv head; tiles as a device with 64 KiB takes them.
CONFIG = "{kind},{rows},{kind},128,128,0,4,8,16,0,-1,-1,0,0,0,0,1,0,1,0,0.0f"
TILE = "16,32,128,1,4,1,0,0,1,4,4,8,0,2147483647,220,1,2,0"


def lines(folder):
    count = {"kernels": 0, "formats.inl": 0}
    for name in KERNELS:
        with open(os.path.join(folder, "kernels", name), encoding="utf-8") as f:
            count[name if name in count else "kernels"] += sum(
                1 for line in f if line.strip() and not line.strip().startswith("//"))
    print(f"lines of {count}; allowed: {MOST_LINES}")
    return all(count[part] <= most for part, most in MOST_LINES.items())


def read(folder, name):
    with open(os.path.join(folder, name), encoding="utf-8") as f:
        return f.read()


def objects(folder, clang):
    good = True
    with tempfile.TemporaryDirectory() as place:
        for name, path in [("types.h", "vendor/types.h"), ("layout.h", "vendor/layout.h"), ("simt.h", "vendor/simt.h"),
                           ("vendor.h", "vendor/hip.h")] + \
                          [(name, f"kernels/{name}") for name in KERNELS]:
            with open(os.path.join(place, name), "w", encoding="utf-8") as f:
                f.write(read(folder, path))
        for kind, rows in ((0, 0), (2, 2), (2, 5)):
            program = os.path.join(place, f"kind{kind}_{rows}.hip")
            with open(program, "w", encoding="utf-8") as f:
                f.write("#define AA_MIN_BLOCKS 1\n#define AA_DIRECT 0\n"
                        "#include \"types.h\"\n"
                        "#include \"shared.h\"\n#include \"layout.h\"\nnamespace anyattn::portable {\n"
                        f"constexpr Config cfg{{{CONFIG.format(kind=kind, rows=rows)}}};\nconstexpr Tile tile{{{TILE}}};\n"
                        "#include \"vendor.h\"\n#include \"attend.inl\"\n#include \"plan.inl\"\n#include \"memory.inl\"\n"
                        + "".join(f"#define AA_PART {part}\n#include \"entries.inl\"\n#undef AA_PART\n" for part in range(5)) + "}\n")
            for target in TARGETS:
                run = subprocess.run([clang, "-x", "hip", "-std=c++17", "--cuda-device-only", f"--offload-arch={target}",
                                      "-nogpulib", "-nogpuinc", "-O3", "-S", program, "-o", "-"],
                                     capture_output=True, text=True, check=False)
                if run.returncode != 0:
                    print(f"{target}, kind {kind}, rows {rows}: {run.stderr[:2000]}")
                    good = False
                    continue
                names = re.findall(r"^\s+\.name:\s+(portable_\w+)", run.stdout, re.M)
                # A spilled scalar goes to a lane of a vector register; spilled vectors go to memory.
                spills = re.findall(r"^\s+\.vgpr_spill_count:\s*(\d+)", run.stdout, re.M)
                used = re.findall(r"^\s+\.vgpr_count:\s*(\d+)", run.stdout, re.M)
                print(f"{target}, kind {kind}, rows {rows}: {len(names)} kernels, at most {max(map(int, used))} registers")
                if len(names) < 6 or any(int(spill) for spill in spills):
                    print(f"{target}, kind {kind}, rows {rows}: kernels {names}, spills {spills}; needed: six kernels, no vector spilled")
                    good = False
    return good


if __name__ == "__main__":
    portable = os.path.join(sys.argv[1], "plugins", "portable")
    ok = lines(portable) if sys.argv[2] == "lines" else objects(portable, sys.argv[3])
    sys.exit(0 if ok else 1)
