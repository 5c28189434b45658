// SPDX-License-Identifier: Apache-2.0
// A hash map of fixed capacity that allocates only when it is made: open addressing, linear probing, no tombstones.
// Included inside core/cache. Keys bring their own hash; values are 32-bit numbers.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace anyattn::cache {

// Key: default-constructible, ==, and `uint64_t hash_of(const Key&)` found by argument lookup, whose low bits are well mixed.
template <class Key>
class FlatMap {
 public:
  static constexpr uint32_t kAbsent = UINT32_MAX;

  // At most half of the places are ever taken, so probes stay short.
  explicit FlatMap(size_t capacity) : mask_(std::bit_ceil(2 * capacity + 2) - 1), places_(mask_ + 1) {}

  uint32_t find(const Key& key) const {
    for (size_t i = hash_of(key) & mask_;; i = (i + 1) & mask_) {
      if (places_[i].value == kAbsent) return kAbsent;
      if (places_[i].key == key) return places_[i].value;
    }
  }

  // The key is not in the map and the map is not full.
  void insert(const Key& key, uint32_t value) {
    size_t i = hash_of(key) & mask_;
    while (places_[i].value != kAbsent) i = (i + 1) & mask_;
    places_[i] = {key, value};
    ++size_;
  }

  // Closes the gap: every later entry of the run that may stand in it moves up.
  void erase(const Key& key) {
    size_t gap = hash_of(key) & mask_;
    while (places_[gap].value == kAbsent || !(places_[gap].key == key)) {
      if (places_[gap].value == kAbsent) return;
      gap = (gap + 1) & mask_;
    }
    for (size_t i = (gap + 1) & mask_; places_[i].value != kAbsent; i = (i + 1) & mask_) {
      const size_t home = hash_of(places_[i].key) & mask_;
      if (((i - home) & mask_) < ((i - gap) & mask_)) continue;  // its home lies behind the gap
      places_[gap] = places_[i];
      gap = i;
    }
    places_[gap].value = kAbsent;
    --size_;
  }

  size_t size() const { return size_; }

 private:
  struct Place {
    Key key{};
    uint32_t value = kAbsent;
  };
  size_t mask_;
  std::vector<Place> places_;
  size_t size_ = 0;
};

}  // namespace anyattn::cache
