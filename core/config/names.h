// SPDX-License-Identifier: Apache-2.0
// Names <-> numbers of device kinds, CPU instruction sets and levels of trust: the one table of each.
// Included by everything that prints or reads such a name. Knows no device.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "anyattn/host.h"
#include "anyattn/types.h"

namespace anyattn::config {

struct DeviceKindName {
  std::string_view name;
  uint32_t kind;
};
inline constexpr std::array<DeviceKindName, 3> kDeviceKinds{{
    {"cpu", ANYATTN_DEVICE_CPU},
    {"cuda", ANYATTN_DEVICE_CUDA},
    {"hip", ANYATTN_DEVICE_HIP},
}};

inline constexpr std::array<std::string_view, 3> kTrustLevels{"none", "hash", "signed"};  // [TrustLevel]

struct CpuIsaName {
  std::string_view name;
  uint64_t bit;
};
inline constexpr std::array<CpuIsaName, 12> kCpuIsas{{
    {"sse4_2", ANYATTN_CPU_SSE4_2},
    {"avx2", ANYATTN_CPU_AVX2},
    {"fma", ANYATTN_CPU_FMA},
    {"f16c", ANYATTN_CPU_F16C},
    {"avx512", ANYATTN_CPU_AVX512},
    {"avx512_bf16", ANYATTN_CPU_AVX512_BF16},
    {"avx512_vnni", ANYATTN_CPU_AVX512_VNNI},
    {"avx512_fp16", ANYATTN_CPU_AVX512_FP16},
    {"amx_tile", ANYATTN_CPU_AMX_TILE},
    {"amx_bf16", ANYATTN_CPU_AMX_BF16},
    {"amx_int8", ANYATTN_CPU_AMX_INT8},
    {"avx512_vbmi", ANYATTN_CPU_AVX512_VBMI},
}};

// "cuda" -> ANYATTN_DEVICE_CUDA.
constexpr std::optional<uint32_t> device_kind_from_name(std::string_view name) {
  for (const DeviceKindName& entry : kDeviceKinds)
    if (entry.name == name) return entry.kind;
  return std::nullopt;
}

// ANYATTN_DEVICE_CUDA -> "cuda"; "unknown" for a number without a name.
constexpr std::string_view device_kind_name(uint32_t kind) {
  for (const DeviceKindName& entry : kDeviceKinds)
    if (entry.kind == kind) return entry.name;
  return "unknown";
}

}  // namespace anyattn::config
