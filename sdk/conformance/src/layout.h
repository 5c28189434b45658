// SPDX-License-Identifier: Apache-2.0
// A cache spec as the kit understands it: checked, copied, and read element by element without the backend's help.
// Included by the kit's runs.
#ifndef ANYATTN_CONFORMANCE_LAYOUT_H
#define ANYATTN_CONFORMANCE_LAYOUT_H

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "anyattn/backend.h"

namespace anyattn::conformance {

class Layout {
 public:
  // Copies the spec. Throws Failure where it breaks kv_cache.h or does not fit the problem.
  Layout(const anyattn_kv_cache_spec& spec, const anyattn_problem& problem);
  // The simplest layout for the problem: token-major planes, one after the other.
  static Layout simplest(const anyattn_problem& problem);

  const anyattn_kv_cache_spec* spec() const;
  const std::string& name() const { return name_; }
  uint32_t block_size() const { return spec_.block_size; }

  // Byte offset in a block of element `dim` of `head` (0 with MLA) of the token at `slot` in the plane of `role`. With
  // PLANE_LATENT the row [kv_c | k_pe] is meant even where the parts stand in two planes; `dim` is not read where a head has
  // one scale.
  uint64_t offset(uint32_t role, int64_t slot, int64_t head, int64_t dim) const;

 private:
  void check(const anyattn_problem& problem) const;
  const anyattn_plane* find(uint32_t role) const;

  std::string name_;
  std::vector<anyattn_plane> planes_;
  mutable anyattn_kv_cache_spec spec_{};
};

// Specs a backend accepts for the problem, best first. Throws Failure where the call fails or the backend accepts none.
std::vector<Layout> accepted_layouts(const anyattn_backend& backend, const anyattn_host* host,
                                     const anyattn_device_facts& facts, const anyattn_problem& problem);

}  // namespace anyattn::conformance

#endif  // ANYATTN_CONFORMANCE_LAYOUT_H
