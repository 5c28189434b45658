#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs libFuzzer over one harness, from its stored corpus, and keeps nothing but an input that fails.

  fuzz.py FUZZER HARNESS [--planted] [FLAG ...]     flags go to libFuzzer, as in -seed=7

ANYATTN_FUZZ_SECONDS (5) says how long. --planted: the fuzzer holds a fault and must find it, within twelve times that.
"""
import argparse
import os
import subprocess
import sys
import tempfile


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("fuzzer")
    p.add_argument("harness")
    p.add_argument("--planted", action="store_true")
    a, flags = p.parse_known_args()
    seconds = int(os.environ.get("ANYATTN_FUZZ_SECONDS", "5"))
    here = os.path.dirname(os.path.abspath(__file__))
    corpus = os.path.join(here, f"corpus_{a.harness}")
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # archives are unpacked thousands of times a second
    with tempfile.TemporaryDirectory(prefix="anyattn_fuzz_", dir=memory) as work:
        new = os.path.join(work, "new")
        os.mkdir(new)
        kept = os.path.dirname(os.path.abspath(a.fuzzer)) if not a.planted else work
        command = [a.fuzzer, a.harness, f"-max_total_time={seconds * (12 if a.planted else 1)}", "-seed=1", "-timeout=10",
                   "-rss_limit_mb=2048", "-print_final_stats=1", f"-use_counters={0 if a.planted else 1}", f"-artifact_prefix={kept}/{a.harness}-", *flags, new, corpus]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False,
                              env={**os.environ, "TMPDIR": work, "ASAN_OPTIONS": "detect_stack_use_after_return=0"})
    lines = done.stderr.splitlines()
    shown = [line for line in lines if "stat::" in line or "SUMMARY" in line or "harness:" in line or line.startswith("Done")]
    print("\n".join(shown))
    if a.planted:
        found = done.returncode != 0 and any("SUMMARY" in line for line in lines)
        print("found" if found else f"the planted fault was not found in {seconds * 12} s: exit {done.returncode}")
        return 0 if found else 1
    if done.returncode != 0:
        print("\n".join(lines[-60:]))
        print(f"add the input that is named above to {corpus}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
