// SPDX-License-Identifier: Apache-2.0
// The tile sizes of the Hopper prefill, one place. Included by its kernel, its host side and the measuring program.
#pragma once

namespace anyattn::flash {

// A block holds `rows` rows of Q (64 a consumer warp group) and walks over K and V by `keys`, `stages` tiles of each in flight.
struct PrefillTile {
  int head_size, head_size_v;  // what the products compute; smaller heads are filled with zeros by the copy engine
  int rows, keys, stages;
  bool q_in_registers;  // head_size / 4 registers more, and K alone is read from shared memory in Q K^T
  int element = 2;      // bytes of an element of Q, K and V; 1: codes, whose V is turned in shared memory

  constexpr bool codes() const { return element == 1; }
  constexpr int groups() const { return rows / 64; }
  constexpr int threads() const { return (groups() + 1) * 128; }
  constexpr int chunks() const { return (head_size * element + 127) / 128; }  // of 128 bytes in shared memory
  constexpr int chunks_v() const { return (head_size_v * element + 127) / 128; }
  constexpr int turned_bytes() const { return codes() ? head_size_v * 128 : 16; }  // a row of V's keys is 128 bytes
  constexpr int shared_bytes() const {
    return 128 * (rows * chunks() + stages * keys * (chunks() + chunks_v())) + stages * turned_bytes() + 1024;
  }
  constexpr int producer_registers() const { return codes() ? 56 : groups() == 2 ? 40 : 32; }
  constexpr int consumer_registers() const { return (512 - producer_registers()) / groups() / 8 * 8; }
};

// Registers: a block has 65536; a producer group of 40 leaves 232 for each of 2 consumer groups, one of 32 leaves 160 for each of 3,
// and one of 56, of which three warps turn V, 152. More than there are would be waited for without end.
// A consumer thread holds keys / 2 scores, keys / 4 of P and head_size_v / 2 of O, and about 40 more. Shared memory: 227 KiB.
inline constexpr PrefillTile kPrefillTiles[] = {
    {64, 64, 192, 128, 2, false},    // 64 + 32 + 32 registers fit 160, so three groups share each tile of K and V; 89 KiB
    {96, 96, 128, 128, 2, false},    // 64 + 32 + 48 do not fit 160; 161 KiB
    {128, 128, 128, 128, 2, true},   // 64 + 32 + 64, and Q's 32 fit 232: 1 % faster at 16384 keys; 161 KiB
    {192, 128, 128, 128, 2, false},  // as 128; Q of 48 KiB and K of 48 KiB a stage; 209 KiB
    {256, 256, 128, 64, 2,
     false},  // O takes 128 registers, and a third stage or 96 keys do not fit beside Q of 64 KiB; 193 KiB
    {128, 128, 192, 96, 2, false,
     1},  // codes: the softmax takes longer than the products, so three groups, 48 + 12 + 64 registers; 105 KiB
};

}  // namespace anyattn::flash
