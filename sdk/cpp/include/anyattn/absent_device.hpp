// SPDX-License-Identifier: Apache-2.0
// Facts of CUDA devices that are not here, for whatever compiles kernels ahead of them. Included by plugins. Looks at no device.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "anyattn/device.h"

namespace anyattn {

inline constexpr const char* kAbsentCudaDevices = "sm_80, sm_86, sm_89, sm_90, sm_100, sm_120";

// The largest card of the architecture; nullopt: none of kAbsentCudaDevices. Strings live for ever.
inline std::optional<anyattn_device_facts> absent_cuda_device(std::string_view architecture) {
  struct Row {
    const char* architecture;
    uint32_t major, minor, multiprocessors, shared_memory;  // bytes a block may opt in to
  };
  constexpr Row kRows[] = {{"sm_80", 8, 0, 108, 163 << 10},   {"sm_86", 8, 6, 84, 99 << 10},
                           {"sm_89", 8, 9, 142, 99 << 10},    {"sm_90", 9, 0, 132, 227 << 10},
                           {"sm_100", 10, 0, 148, 227 << 10}, {"sm_120", 12, 0, 188, 99 << 10}};
  for (const Row& row : kRows) {
    if (architecture != row.architecture) continue;
    anyattn_device_facts facts{};
    facts.struct_size = ANYATTN_DEVICE_FACTS_SIZE;
    facts.device_kind = ANYATTN_DEVICE_CUDA;
    facts.arch_major = row.major;
    facts.arch_minor = row.minor;
    facts.num_multiprocessors = row.multiprocessors;
    facts.warp_size = 32;
    facts.shared_memory_per_block = row.shared_memory;
    facts.memory_bytes = uint64_t{1} << 36;
    facts.features = ANYATTN_DEVICE_HAS_GRAPHS;
    facts.architecture = row.architecture;
    facts.name = "absent device";
    return facts;
  }
  return std::nullopt;
}

}  // namespace anyattn
