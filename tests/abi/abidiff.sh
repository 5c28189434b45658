#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# abidiff.sh LIBRARY DUMP [--write]: compares the interface's types with the committed dump; the second opinion beside the
# golden list, which is the gate.
set -euo pipefail
library=$1 dump=$2
if ! command -v abidw >/dev/null; then
  [[ "${ANYATTN_REQUIRE_ALL:-0}" == 1 ]] && { echo "abidw is missing: apt-get install abigail-tools"; exit 1; }
  echo "SKIPPED: abidw is missing: apt-get install abigail-tools"
  exit 0
fi
if [[ "${3:-}" == --write ]]; then
  abidw --no-show-locs --no-corpus-path --no-comp-dir-path "$library" --out-file "$dump"
  exit 0
fi
abidiff --leaf-changes-only --impacted-interfaces --no-show-locs "$dump" "$library"
echo "no difference to $(basename "$dump")"
