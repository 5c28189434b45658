// SPDX-License-Identifier: Apache-2.0
#include "cache.h"

namespace anyattn::cpu {

void store_rows(const Host& host, const Plan& plan, const CacheLayout& layout, const anyattn_cache& cache,
                const StoredRows (&tensors)[2], const TensorView<const int64_t, 1>& slots) {
  const int64_t count = slots.shape(0), block_size = layout.block_size;
  for (int64_t t = 0; t < count; ++t) {
    const int64_t slot = slots(t);
    if (slot < -1 || (slot >= 0 && static_cast<uint64_t>(slot / block_size) >= cache.num_blocks))
      throw Error(ANYATTN_INVALID_ARGUMENT, "slot_mapping[", t, "] is ", slot, "; allowed: -1 or below ", cache.num_blocks,
                  " blocks of ", block_size);
  }
  auto* base = static_cast<char*>(cache.base);
  const CacheFormat& format = *plan.format;
  const int64_t element = dtype_bytes(format.dtype);
  const int64_t scale_stride = plan.has(ANYATTN_FEATURE_KV_SCALES_PER_HEAD) ? 1 : 0;
  const RowFormat kept = rows_of(format);
  const auto store = plan.kernels->store_row[kept];
  host.parallel_for(static_cast<uint64_t>(count), 16, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (auto t = static_cast<int64_t>(begin); t < static_cast<int64_t>(end); ++t) {
      const int64_t slot = slots(t);
      if (slot < 0) continue;
      char* block = base + static_cast<uint64_t>(slot / block_size) * cache.block_stride_bytes;
      const auto row_of = [&](const StoredRows& tensor) {
        return block + tensor.plane.byte_offset + slot % block_size * tensor.plane.token_bytes;
      };
      const auto given = [t](const StoredRows& tensor, int64_t head) {
        return reinterpret_cast<const char*>(tensor.rows.at(t, head));
      };
      if (kept == kRowsRecord) {
        plan.kernels->store_record(row_of(tensors[0]), given(tensors[0], 0), given(tensors[1], 0), plan.q_kind);
        continue;
      }
      for (const StoredRows& tensor : tensors) {
        char* to = row_of(tensor) + tensor.column * element;
        const auto size = static_cast<uint32_t>(tensor.rows.shape[2]);
        for (int64_t head = 0; head < tensor.rows.shape[1]; ++head) {
          const float scale = tensor.scales ? tensor.scales[head * scale_stride] : 1.f;
          store(to + head * tensor.plane.head_bytes, given(tensor, head), plan.q_kind, size, scale);
        }
      }
    }
  });
}

}  // namespace anyattn::cpu
