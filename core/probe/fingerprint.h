// SPDX-License-Identifier: Apache-2.0
// What besides a plugin's own bytes decides whether it opens: the machine's part of a verdict's key. Included by the prober.
#pragma once

#include <string>
#include <vector>

namespace anyattn::probe {

// C library, GPU drivers and GPUs, the helper program, the interface's version: one line each. Read once a process.
const std::vector<std::string>& machine_facts(const std::string& helper);

// A file as it lies there: path, device, inode, size, time of change; "PATH absent" where there is none.
std::string file_facts(const std::string& path);

// 64 hex digits over all lines: BLAKE2b-256.
std::string digest(const std::vector<std::string>& lines);

}  // namespace anyattn::probe
