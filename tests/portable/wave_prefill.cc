// SPDX-License-Identifier: Apache-2.0
// float16, an odd number of steps of 16 columns, a window: eight waves of 16 rows.
#include <cstdlib>
#include <cstring>

#include "hip_on_host.h"
#include "kernels/shared.h"
#include "problems.h"
#include "vendor/layout.h"
#include "wave_case.h"

namespace anyattn::portable {
namespace wave_prefill {
namespace {

constexpr Config cfg = on_waves(plain(kF16, kF16, 80, 1), 2, 90);
constexpr Tile tile{.rows = 128,
                    .keys = 64,
                    .columns = 80,
                    .warps_m = 8,
                    .warps_n = 1,
                    .m_tiles = 1,
                    .stages = 1,
                    .heads = 1,
                    .tokens = 128,
                    .head_units = 2,
                    .min_query = 17,
                    .max_query = 2147483647,
                    .min_tiles = 4,
                    .slack = 10,
                    .cut_tiles = 10};
#include "wave_units.inl"

}  // namespace
}  // namespace wave_prefill

const WaveCase kWavePrefill = {wave_prefill::cfg, wave_prefill::tile, wave_prefill::attend_all};

}  // namespace anyattn::portable
