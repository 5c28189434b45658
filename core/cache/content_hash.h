// SPDX-License-Identifier: Apache-2.0
// What a prefix of tokens is known by: a 128-bit chain over every token so far, keyed per pool.
// Included inside core/cache. The key is drawn when a pool is made, so nobody can prepare two prompts that meet.
#pragma once

#include <cstdint>

namespace anyattn::cache {

struct ContentHash {
  uint64_t high = 0;
  uint64_t low = 0;

  friend bool operator==(const ContentHash&, const ContentHash&) = default;
  friend uint64_t hash_of(const ContentHash& hash) { return hash.low; }
};

// Both lanes are SplitMix64's finaliser over (state, input) with unlike additions; each step is a bijection of its lane.
inline uint64_t mix64(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

inline ContentHash extend(const ContentHash& prefix, uint64_t word) {
  return {mix64(prefix.high + 0x9E3779B97F4A7C15u + word), mix64(prefix.low ^ (word * 0xD6E8FEB86659FD93u + 1))};
}

}  // namespace anyattn::cache
