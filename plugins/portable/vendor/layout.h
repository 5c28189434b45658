// SPDX-License-Identifier: Apache-2.0
// A program's shared memory on a device. Included after kernels/shared.h, by a device's program
// and by the host's part for the sizes of launches.
#pragma once

namespace anyattn::portable {

// Bytes of shared memory a program of `attend` needs: q (4-bit rows: and what rounding leaves of the rotated q), then the key
// tiles (later the staged accumulators), where their rows lie, then what warps tell each other. Rows are padded to an odd
// number of 16-byte chunks, so that eight rows of a matrix load lie in eight banks.
constexpr int odd_pitch(int bytes) { return (bytes / 16 | 1) * 16; }
constexpr int query_pitch(const Config& cfg, const Tile& tile) {
  const int bytes = padded_to(cfg.head_size, row_step(cfg)) * element_bytes(cfg);
  return tile.groups ? bytes : odd_pitch(bytes);
}
constexpr int query_parts(const Config& cfg) { return cfg.rows == kRowsInt4Scaled && cfg.kind != kF32 ? 2 : 1; }
constexpr int score_pitch(const Tile& tile) { return tile.share ? tile.keys + 8 : tile.keys; }
// Where warps share, q is kept in registers and sums take its place.
constexpr int query_bytes(const Config& cfg, const Tile& tile) {
  const int sums = tile.share * tile.rows * score_pitch(tile) * 4,
            query = tile.rows * query_pitch(cfg, tile) * query_parts(cfg);
  return sums > query ? sums : query;
}
constexpr int tile_pitch(const Config& cfg, int size) {
  return odd_pitch(code_bytes(cfg, padded_to(size, row_step(cfg))) + (has_row_scales(cfg.rows) ? 16 : 0));
}
// Latent keys of warp groups: other warps fetch them into tiles of 16-bit rows, whatever the cache holds (feed.h).
constexpr bool is_fed(const Tile& tile) { return tile.groups && tile.warps_n == 2; }
// Lanes of a warp as tiles count them: those of one product.
constexpr int warp_lanes(const Config& cfg) { return cfg.matrix == 64 ? 64 : 32; }
constexpr int launched_threads(const Config& cfg, const Tile& tile) {
  return warp_lanes(cfg) * tile.warps_m * tile.warps_n + (is_fed(tile) ? 256 : 0);
}
// Decode of rows with scales of their own: they lie as a block has them, codes and scale without a gap.
constexpr bool is_flat(const Config& cfg, const Tile& tile) { return cfg.matrix && has_row_scales(cfg.rows) && tile.rows == 8; }
constexpr int stage_bytes(const Config& cfg, const Tile& tile) {
  if (is_flat(cfg, tile)) return tile.keys * (row_bytes(cfg, cfg.head_size) + row_bytes(cfg, cfg.head_size_v));
  if (tile.groups) return tile.keys * 2 * (cfg.head_size + (cfg.latent ? 0 : tile.columns));
  return tile.keys * (tile_pitch(cfg, cfg.head_size) + (cfg.latent ? 0 : tile_pitch(cfg, tile.columns)));
}
constexpr int body_bytes(const Config& cfg, const Tile& tile) {
  const int keys = tile.stages * stage_bytes(cfg, tile);
  const int staged = tile.warps_n > 1 && !tile.share && !tile.groups ? tile.warps_n * tile.rows * (tile.columns + 8) * 4 : 0;
  return keys > staged ? keys : staged;
}
constexpr int weights_bytes(const Config& cfg, const Tile& tile) {  // probabilities of a scalar P V, or those that warps share
  return tile.share ? tile.rows * score_pitch(tile) * 2 : cfg.kind == kF32 || !cfg.matrix ? tile.rows * tile.keys * 4 : 0;
}
constexpr int offset_bytes(const Tile& tile) { return tile.stages * (is_fed(tile) ? 16 : tile.keys * 16); }  // or barriers
constexpr int shared_bytes(const Config& cfg, const Tile& tile) {
  return query_bytes(cfg, tile) + body_bytes(cfg, tile) + weights_bytes(cfg, tile) + offset_bytes(tile) +
         (tile.share ? 3 : 2 * tile.warps_n) * tile.rows * 4;
}

// Programs that share the rows of one merge, and the threads of each. Wide rows are few and long.
constexpr bool has_wide_rows(const Tile& tile) { return tile.columns >= 256; }
constexpr int merge_shares(const Tile& tile) { return has_wide_rows(tile) ? 16 : tile.rows > 16 ? tile.rows / 8 : 2; }
constexpr int merge_threads(const Tile& tile) { return has_wide_rows(tile) ? 512 : 128; }

}  // namespace anyattn::portable
