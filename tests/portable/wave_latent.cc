// SPDX-License-Identifier: Apache-2.0
// MLA, bfloat16, 20 heads: values are the first 512 entries of keys, in pieces of 256 columns.
#include <cstdlib>
#include <cstring>

#include "hip_on_host.h"
#include "kernels/shared.h"
#include "problems.h"
#include "vendor/layout.h"
#include "wave_case.h"

namespace anyattn::portable {
namespace wave_latent {
namespace {

constexpr Config cfg = on_waves(latent(kBF16, kBF16, 512, 64, 20), 1);
constexpr Tile tile{.rows = 16,
                    .keys = 32,
                    .columns = 256,
                    .warps_m = 1,
                    .warps_n = 2,
                    .m_tiles = 1,
                    .stages = 1,
                    .heads = 16,
                    .tokens = 1,
                    .head_units = 4,
                    .max_query = 2147483647,
                    .min_tiles = 1,
                    .slack = 1,
                    .cut_tiles = 1};
#include "wave_units.inl"

}  // namespace
}  // namespace wave_latent

const WaveCase kWaveLatent = {wave_latent::cfg, wave_latent::tile, wave_latent::attend_all};

}  // namespace anyattn::portable
