// SPDX-License-Identifier: Apache-2.0
// float16, 8 query heads a kv head: four waves share the keys, q stays in registers.
#include <cstdlib>
#include <cstring>

#include "hip_on_host.h"
#include "kernels/shared.h"
#include "problems.h"
#include "vendor/layout.h"
#include "wave_case.h"

namespace anyattn::portable {
namespace wave_decode {
namespace {

constexpr Config cfg = on_waves(plain(kF16, kF16, 32, 8), 2);
constexpr Tile tile{.rows = 16,
                    .keys = 64,
                    .columns = 32,
                    .warps_m = 1,
                    .warps_n = 4,
                    .m_tiles = 1,
                    .keep_query = 1,
                    .stages = 2,
                    .heads = 8,
                    .tokens = 2,
                    .head_units = 2,
                    .max_query = 2,
                    .min_tiles = 1,
                    .slack = 1,
                    .cut_tiles = 1};
#include "wave_units.inl"

}  // namespace
}  // namespace wave_decode

const WaveCase kWaveDecode = {wave_decode::cfg, wave_decode::tile, wave_decode::attend_all};

}  // namespace anyattn::portable
