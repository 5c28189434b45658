// SPDX-License-Identifier: Apache-2.0
// A problem and a cache spec that own what the C structs only point to; compared and hashed by what they mean.
// Included by the selector and the API.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "anyattn/kv_cache.h"
#include "anyattn/problem.h"

namespace anyattn::selector {

// A deep copy. Parameters whose feature is off are 0 and trailing zero words are gone, so equal meaning is equal bytes.
class OwnedProblem {
 public:
  OwnedProblem() = default;
  // Reads `given` through its struct_size; it must have passed validate_problem.
  explicit OwnedProblem(const anyattn_problem& given);

  // Pointers in it live as long as this object stays where it is and unchanged.
  anyattn_problem view() const;

  bool has(uint32_t feature) const;
  bool is_mla() const { return has(ANYATTN_FEATURE_MLA); }
  bool is_paged() const { return plain_.key_source == ANYATTN_KEYS_PAGED; }
  uint32_t phase() const { return plain_.phase; }
  uint32_t block_size() const { return plain_.block_size; }
  const std::optional<std::string>& kv_cache_dtype() const { return kv_cache_dtype_; }

  void set_phase(uint32_t phase) { plain_.phase = phase; }
  void set_block_size(uint32_t block_size) { plain_.block_size = block_size; }
  void set_kv_cache_dtype(std::string name) { kv_cache_dtype_ = std::move(name); }

  bool operator==(const OwnedProblem& other) const { return key() == other.key(); }
  // Every byte that counts, for hashes and cache keys.
  std::string key() const;

 private:
  anyattn_problem plain_{};  // pointers null
  std::vector<uint64_t> features_;
  std::optional<std::string> kv_cache_dtype_;
};

// A deep copy of an accepted spec; planes are normalised to this header's layout.
class OwnedSpec {
 public:
  OwnedSpec() = default;
  explicit OwnedSpec(const anyattn_kv_cache_spec& given);

  // Pointers in it live as long as this object stays where it is.
  anyattn_kv_cache_spec view() const;
  uint64_t digest() const { return plain_.digest; }
  uint32_t block_size() const { return plain_.block_size; }
  uint64_t block_bytes() const { return plain_.block_bytes; }
  const std::string& name() const { return name_; }
  const std::vector<anyattn_plane>& planes() const { return planes_; }
  uint32_t num_planes_given() const { return plain_.num_planes; }  // more than planes() where the spec is broken

 private:
  anyattn_kv_cache_spec plain_{};  // pointers null
  std::vector<anyattn_plane> planes_;
  std::string name_;
};

// Empty where the spec can be used for `block_size` tokens a block, else one sentence.
std::string validate_spec(const OwnedSpec& spec, uint32_t block_size);

}  // namespace anyattn::selector
