#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether a device stays busy where few rows give it little to do: bugs that show as time only, on an `anyattn bench` answer.

  anyattn bench --device cuda:0 --heads 32/8/128,8/1/128,16/2/128 --phases decode \\
      --contexts 512,640,1024,4096,16384,65536,131072 --batches 1,16 --json answer.json
  bench_on_device.py answer.json

Needs a device, so CI does not run it. One request of few heads has fewer tiles than multiprocessors (a split too few), and one long
request has more keys than a fixed number of splits spreads (a split cap)."""
import json
import sys

LONG = (4096, 16384, 65536, 131072)
RISE = 1.05  # of the time a key; a timer's spread between neighbours of one run


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        rows = [row for row in json.load(f)["rows"] if row["phase"] == "decode"]
    at = {(row["heads"], row["num_reqs"], row["seq_len"]): row for row in rows}
    failures = []

    # One split: 4 tiles at most would read these keys one after the other. From 512 to 640 keys the work grows by a quarter.
    for heads in ("8/1/128", "16/2/128"):
        short, longer = (at[heads, 1, keys]["forward_us"] for keys in (512, 640))
        whole = at["32/8/128", 1, 512]["forward_us"]
        print(f"{heads}: 512 keys {short:.1f} us, 640 keys {longer:.1f} us; 32/8/128, 512 keys {whole:.1f} us")
        if short > 1.1 * whole:
            failures.append(f"{heads} of 512 keys takes {short:.1f} us, 8 kv heads of them {whole:.1f} us: one split while the "
                            "device idles")

    # From 4,096 keys on a key costs no more the more there are, and the longest reads as fast as many short ones.
    per_key = [at["32/8/128", 1, keys]["ns_a_key"] for keys in LONG]
    print("ns a key of one request: " + ", ".join(f"{keys} keys {ns:.3f}" for keys, ns in zip(LONG, per_key)))
    for i in range(1, len(LONG)):
        if per_key[i] > RISE * per_key[i - 1]:
            failures.append(f"a key costs {per_key[i]:.3f} ns at {LONG[i]} keys, {per_key[i - 1]:.3f} at {LONG[i - 1]}")
    one, many = at["32/8/128", 1, 65536]["gb_per_s"], at["32/8/128", 16, 4096]["gb_per_s"]
    print(f"1 x 65536 reads {one:.0f} GB/s, 16 x 4096 {many:.0f} GB/s")
    if one < 0.8 * many:
        failures.append(f"1 x 65536 reads {one:.0f} GB/s, less than 80 % of the {many:.0f} of 16 x 4096")

    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
