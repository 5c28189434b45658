// SPDX-License-Identifier: Apache-2.0
// The units of a batch, each a program of emulated threads. Included by wave_*.cc behind `cfg` and `tile`.
#include "vendor/hip.h"

#include "kernels/attend.inl"
#include "kernels/plan.inl"

void attend_all(const AttendArgs& a) {
  const BatchView& batch = a.batch;
  const auto bytes = static_cast<size_t>(shared_bytes(cfg, tile));
  const std::unique_ptr<char, void (*)(void*)> memory(static_cast<char*>(std::aligned_alloc(1024, (bytes + 1023) / 1024 * 1024)),
                                                      std::free);
  for (int req = 0; req < batch.num_reqs; ++req)
    for (int i = 0; i < items_of(batch, req); ++i)
      for (int unit = 0; unit < tile.head_units; ++unit) {
        std::memset(memory.get(), 0xff, bytes);  // NaN
        const Item item = list_item(batch, req, i);
        on_host::Block::run(launched_threads(cfg, tile), [&] {
          attend_unit(a, batch, Tiles{memory.get(), shared_at(memory.get())}, item, unit, 0, item.tiles, nullptr);
        });
      }
}
