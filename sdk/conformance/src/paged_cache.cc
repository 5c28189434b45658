// SPDX-License-Identifier: Apache-2.0
#include "paged_cache.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "failure.h"
#include "format_case.h"

namespace anyattn::conformance {
namespace {

constexpr int64_t kSpareBlocks = 3;

float poison_value(Poison poison, uint32_t dtype) {
  switch (poison) {
    case Poison::kNan:
      return std::numeric_limits<float>::quiet_NaN();
    case Poison::kInfinity:
      return std::numeric_limits<float>::infinity();
    case Poison::kHuge:
      return dtype == ANYATTN_DTYPE_FLOAT16 ? 6e4f : 1e30f;
    case Poison::kZero:
      return 0.0f;
  }
  return 0.0f;
}

// Ids 0 to count - 1 in a scrambled order that does not start with 0.
std::vector<int64_t> scrambled(int64_t count, uint64_t seed) {
  std::vector<int64_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), int64_t{0});
  SplitMix64 generator(seed);
  for (size_t i = ids.size(); i > 1; --i) std::swap(ids[i - 1], ids[generator.below(i)]);
  if (ids.size() > 1 && ids[0] == 0) std::swap(ids[0], ids[1]);
  return ids;
}

}  // namespace

PagedCache::PagedCache(const Case& c, const Layout& layout, const std::vector<std::vector<int64_t>>& key_rows, Poison poison)
    : layout_(layout), format_(format_of(c)), kv_lora_rank_(c.kv_lora_rank) {
  place(c, key_rows);
  const anyattn_kv_cache_spec& spec = *layout_.spec();
  const auto extra = (static_cast<uint64_t>(c.stride_extra) + spec.alignment - 1) / spec.alignment * spec.alignment;
  std::vector<int64_t> used;
  for (const auto& ids : blocks_) used.insert(used.end(), ids.begin(), ids.end());
  memory_ = std::make_unique<CacheMemory>(num_blocks_, spec.block_bytes + extra, std::move(used));
  poison_all(poison);
  image_ = memory_->image();
  cache_.struct_size = ANYATTN_CACHE_SIZE;
  cache_.base = memory_->lent();
  cache_.block_stride_bytes = memory_->stride();
  cache_.num_blocks = num_blocks_;
  cache_.spec = layout_.spec();
}

void PagedCache::place(const Case& c, const std::vector<std::vector<int64_t>>& key_rows) {
  const auto block_size = static_cast<int64_t>(layout_.block_size());
  std::map<int64_t, size_t> shared;  // first key row of a shared block -> its number
  std::vector<std::vector<size_t>> numbers(key_rows.size());
  size_t count = 0;
  for (size_t r = 0; r < key_rows.size(); ++r) {
    const auto& rows = key_rows[r];
    for (int64_t first = 0; first < static_cast<int64_t>(rows.size()); first += block_size) {
      const bool in_prefix = first + block_size <= c.prefix;
      const auto [at, fresh] = in_prefix ? shared.try_emplace(first, count) : std::pair(shared.end(), true);
      numbers[r].push_back(fresh ? count++ : at->second);
    }
    for (int i = 0; i < c.surplus; ++i) numbers[r].push_back(count++);
  }
  std::vector<int64_t> ids = scrambled(static_cast<int64_t>(count) + kSpareBlocks, c.seeds[0] + 99);
  if (!c.table.empty()) {
    if (c.table.size() < count)
      throw CaseError(text("case: table= names %zu blocks; the batch needs %zu", c.table.size(), count));
    ids = c.table;
  }
  num_blocks_ = static_cast<uint64_t>(*std::max_element(ids.begin(), ids.end())) + 1;

  std::set<int64_t> seen;
  for (size_t r = 0; r < key_rows.size(); ++r) {
    auto& blocks = blocks_.emplace_back();
    for (size_t number : numbers[r]) blocks.push_back(ids[number]);
    for (size_t l = 0; l < key_rows[r].size(); ++l) {
      const auto key = static_cast<int64_t>(l);
      const int64_t slot = blocks[static_cast<size_t>(key / block_size)] * block_size + key % block_size;
      if (seen.insert(slot).second) slots_.push_back({slot, key_rows[r][l]});
    }
  }
}

// Formats of one byte and less take the pattern of a float32: it is what their inline scales read.
void PagedCache::poison_all(Poison poison) {
  const uint32_t dtype = format_.coding == Coding::kFloat ? format_.dtype : ANYATTN_DTYPE_FLOAT32;
  const size_t bytes = dtype_bytes(dtype);
  std::byte pattern[4];
  store_element(dtype, pattern, poison_value(poison, dtype));
  for (int64_t id : memory_->used()) {
    std::byte* block = memory_->block(id);
    if (poison == Poison::kNan) {  // a NaN without zero bytes, so that a stray write of zeros shows
      std::memset(block, 0xff, memory_->stride());
      continue;
    }
    for (uint64_t at = 0; at + bytes <= memory_->stride(); at += bytes) std::memcpy(block + at, pattern, bytes);
  }
}

void PagedCache::check_stored(const std::vector<Rows>& rows) {
  const auto& used = memory_->used();
  const auto block_size = static_cast<int64_t>(layout_.block_size());
  std::map<int64_t, size_t> index;
  for (size_t i = 0; i < used.size(); ++i) index[used[i]] = i;
  for (const Slot& slot : slots_) {
    std::byte* block = image_.data() + index.at(slot.slot / block_size) * memory_->stride();
    for (const Rows& given : rows) {
      for (int64_t head = 0; head < given.heads; ++head) {
        const auto first = static_cast<size_t>((slot.key_row * given.heads + head) * given.size);
        const std::span<const float> row(given.values->data() + first, static_cast<size_t>(given.size));
        const float scale = scale_for(given.scales, head);
        for (const StoredPiece& piece : encode_row(format_, given.kind, row, scale, kv_lora_rank_)) {
          const size_t width = ((piece.dtype >> 8) & 0xffu) / 8;
          for (size_t i = 0; i * width < piece.bytes.size(); ++i) {
            const uint64_t at = layout_.offset(piece.role, slot.slot % block_size, head, static_cast<int64_t>(i));
            std::memcpy(block + at, piece.bytes.data() + i * width, width);
          }
        }
      }
    }
  }
  memory_->check();
  const std::vector<std::byte> now = memory_->image();
  const auto differs = std::mismatch(now.begin(), now.end(), image_.begin());
  if (differs.first == now.end()) return;
  const auto at = static_cast<uint64_t>(differs.first - now.begin());
  throw Failure(text("kv_cache_update: byte %llu of block %lld is not what the new keys and the slots give (spec %s)",
                     static_cast<unsigned long long>(at % memory_->stride()),
                     static_cast<long long>(used[at / memory_->stride()]), layout_.name().c_str()));
}

void PagedCache::forget(int64_t block) {
  std::memset(memory_->block(block), 0xff, memory_->stride());
  image_ = memory_->image();
}

void PagedCache::check_unchanged(const char* slot) const {
  memory_->check();
  if (memory_->image() != image_) throw Failure(std::string(slot) + " wrote to the cache");
}

}  // namespace anyattn::conformance
