// SPDX-License-Identifier: Apache-2.0
// Problems and a device as choose_tiles takes them, without a plugin. Included by the tests of tiles and by program_texts.cc.
#pragma once

#include "anyattn/absent_device.hpp"
#include "kernels.h"

namespace anyattn::portable {

// With AMD's 64 KiB.
inline anyattn_device_facts small_device() {
  anyattn_device_facts facts = *absent_cuda_device("sm_80");
  facts.name = "64 KiB";
  facts.shared_memory_per_block = 64 << 10;
  return facts;
}

// The same, whose matrix cores mfma.h knows.
inline anyattn_device_facts wave_device() {
  anyattn_device_facts facts = small_device();
  facts.device_kind = ANYATTN_DEVICE_HIP;
  facts.architecture = "gfx90a";
  facts.arch_major = 9;
  facts.arch_minor = 0x0a;
  return facts;
}

// Its tiles, under option products.
inline void choose(const anyattn_device_facts& facts, const char* products, Specialisation& spec) {
  const anyattn_option option{ANYATTN_OPTION_SIZE, 0, "products", products};
  anyattn_host host{};
  host.struct_size = ANYATTN_HOST_SIZE;
  host.num_options = 1;
  host.option_stride = sizeof option;
  host.options = &option;
  choose_tiles(anyattn::Host(&host), facts, spec);
}

constexpr Specialisation plain(int kind, int rows, int head_size, int group) {
  Specialisation spec;
  Config& cfg = spec.cfg;
  cfg.kind = cfg.out_kind = kind;
  cfg.rows = rows;
  cfg.head_size = cfg.head_size_v = head_size;
  cfg.group = group;
  cfg.num_kv_heads = 8;
  cfg.block_size = 64;
  cfg.window_left = cfg.window_right = -1;
  cfg.cp_world = cfg.cp_interleave = 1;
  return spec;
}
constexpr Specialisation latent(int kind, int rows, int rank, int rope, int heads) {
  Specialisation spec = plain(kind, rows, rank + rope, heads);
  spec.cfg.latent = spec.cfg.num_kv_heads = 1;
  spec.cfg.head_size_v = rank;
  return spec;
}
// Keys and values of the call itself, as MLA's prefill has them.
constexpr Specialisation direct(int kind, int head_size, int head_size_v) {
  Specialisation spec = plain(kind, kind, head_size, 1);
  spec.cfg.head_size_v = head_size_v;
  spec.cfg.block_size = 0;
  spec.direct = 1;
  return spec;
}

}  // namespace anyattn::portable
