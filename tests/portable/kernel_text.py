#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the one kernel text of plugins/portable without a device.

  kernel_text.py lines ROOT            the kernels stay within 835 lines that are neither blank nor comment, the codes of
                                       quantised rows within 125
  kernel_text.py objects TEXTS CLANG   the programs that TEXTS (program_texts.cc) writes compile for AMD's targets; registers and
                                       spilled vectors stay within their bounds; wave_* multiply on the matrix cores of those
                                       that have them, others nowhere
"""
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile

MOST_LINES = {"kernels": 835, "formats.inl": 125}
TARGETS = ("gfx90a", "gfx942", "gfx1100")
WAVE_TARGETS = ("gfx90a", "gfx942")
KERNELS = ("attend.inl", "plan.inl", "memory.inl", "entries.inl", "shared.h", "formats.inl")
# Vector registers, and of them spilled to memory. Records hold four scales beside all else: 266 on gfx90a and gfx942, which have
# 512, three spilled on gfx1100; latent layers on matrix cores 312 (clang 19).
MOST = {"records_16_heads_00.hip": (272, 4), "wave_latent_128_heads_00.hip": (320, 0)}
MOST_ELSE = (256, 0)


def lines(folder):
    count = {"kernels": 0, "formats.inl": 0}
    for name in KERNELS:
        with open(os.path.join(folder, "kernels", name), encoding="utf-8") as f:
            count[name if name in count else "kernels"] += sum(
                1 for line in f if line.strip() and not line.strip().startswith("//"))
    print(f"lines of {count}; allowed: {MOST_LINES}")
    return all(count[part] <= most for part, most in MOST_LINES.items())


def compile_one(clang, program, target):
    """(what it is, registers, vectors spilled, complaint)"""
    what = f"{os.path.basename(program)} for {target}"
    run = subprocess.run([clang, "-x", "hip", "-std=c++17", "--cuda-device-only", f"--offload-arch={target}", "-nogpulib",
                          "-nogpuinc", "-O3", "-S", program, "-o", "-"], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        return what, 0, 0, run.stderr[:2000]
    used = [int(n) for n in re.findall(r"^\s+\.vgpr_count:\s*(\d+)", run.stdout, re.M)]
    # A spilled scalar goes to a lane of a vector register; spilled vectors go to memory.
    spilled = [int(n) for n in re.findall(r"^\s+\.vgpr_spill_count:\s*(\d+)", run.stdout, re.M)]
    if not re.search(r"^\s+\.name:\s+portable_\w+", run.stdout, re.M) or not used or len(used) != len(spilled):
        return what, 0, 0, "no kernel in it"
    wave, half = re.match(r"(wave_)?(half_)?", os.path.basename(program)).groups()
    product = f"v_mfma_f32_16x16x16_?{'f16' if half else 'bf16'}" if wave else "v_mfma"
    if bool(wave) != bool(re.search(product, run.stdout)):
        return what, 0, 0, f"{product} should be in wave_* and nowhere else"
    return what, max(used), sum(spilled), ""


def objects(texts, clang):
    good = True
    with tempfile.TemporaryDirectory() as place, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        subprocess.run([texts, place], check=True)
        programs = sorted(os.path.join(place, name) for name in os.listdir(place) if name.endswith(".hip"))
        jobs = [pool.submit(compile_one, clang, program, target) for program in programs
                for target in (WAVE_TARGETS if os.path.basename(program).startswith("wave_") else TARGETS)]
        for what, used, spilled, complaint in (job.result() for job in jobs):
            most = MOST.get(what.split()[0], MOST_ELSE)
            print(f"{what}: {used} registers, {spilled} spilled; allowed: {most}. {complaint}")
            good = good and not complaint and used <= most[0] and spilled <= most[1]
    return good and len(programs) >= 14


if __name__ == "__main__":
    ok = lines(os.path.join(sys.argv[2], "plugins", "portable")) if sys.argv[1] == "lines" else objects(sys.argv[2], sys.argv[3])
    sys.exit(0 if ok else 1)
