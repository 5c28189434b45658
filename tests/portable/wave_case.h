// SPDX-License-Identifier: Apache-2.0
// The kernels of one problem as compiled for waves of 64 lanes, run by hip_on_host.h. Each wave_*.cc compiles one; wave_test.cc runs it.
#pragma once

#include "kernels.h"
#include "kernels/shared.h"

namespace anyattn::portable {

constexpr Config on_waves(Specialisation spec, int num_kv_heads, int window_left = -1, int matrix = 64) {
  spec.cfg.num_kv_heads = num_kv_heads;
  spec.cfg.window_left = window_left;
  spec.cfg.matrix = matrix;
  return spec.cfg;
}

struct WaveCase {
  Config cfg;
  Tile tile;
  // Every unit of the batch, one after the other; a.batch counts.
  void (*attend)(const AttendArgs& a);
};

extern const WaveCase kWaveDecode, kWavePrefill, kWaveLatent, kWaveScalar;

}  // namespace anyattn::portable
