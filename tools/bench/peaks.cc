// SPDX-License-Identifier: Apache-2.0
#include "bench/peaks.h"

#include <atomic>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#define ANYATTN_TARGET(set) __attribute__((noinline, target(set)))
// The sums of a peak are equal, and a compiler that sees so keeps one of them: each is made its own before every step.
#define ANYATTN_DISTINCT(sum) __asm__ volatile("" : "+v"(sum))
#endif

namespace anyattn::tools::bench {
namespace {

constexpr int kSums = 12;           // independent sums: latency 4 x 2 units, and some to spare
constexpr uint64_t kSteps = 50000;  // some 4 ms at 3 GHz: AMX takes a while to reach its rate, a second thread to wake

// Results end here, so that no compiler leaves the work out.
std::atomic<uint64_t> kept{0};
void keep(uint64_t value) { kept.store(value, std::memory_order_relaxed); }
void keep(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  keep(uint64_t{bits});
}

#if defined(__x86_64__)

bool has_avx512() { return __builtin_cpu_supports("avx512f") != 0; }
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

// The kernel gives tiles to a process that asks.
bool ask_for_tiles() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

ANYATTN_TARGET("avx512f") double fma_512() {
  __m512 sums[kSums];
  const __m512 x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(1e-6f);
#pragma GCC unroll 12
  for (int i = 0; i < kSums; ++i) sums[i] = y;
  for (uint64_t step = 0; step < 20 * kSteps; ++step) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) {
      ANYATTN_DISTINCT(sums[i]);
      sums[i] = _mm512_fmadd_ps(sums[i], x, y);
    }
  }
#pragma GCC unroll 12
  for (int i = 1; i < kSums; ++i) sums[0] = _mm512_add_ps(sums[0], sums[i]);
  alignas(64) float lanes[16];
  _mm512_store_ps(lanes, sums[0]);
  keep(lanes[0]);
  return 20.0 * kSteps * kSums * 2 * 16;
}

ANYATTN_TARGET("avx2,fma") double fma_256() {
  __m256 sums[kSums];
  const __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(1e-6f);
#pragma GCC unroll 12
  for (int i = 0; i < kSums; ++i) sums[i] = y;
  for (uint64_t step = 0; step < 20 * kSteps; ++step) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) {
      ANYATTN_DISTINCT(sums[i]);
      sums[i] = _mm256_fmadd_ps(sums[i], x, y);
    }
  }
#pragma GCC unroll 12
  for (int i = 1; i < kSums; ++i) sums[0] = _mm256_add_ps(sums[0], sums[i]);
  keep(_mm_cvtss_f32(_mm256_castps256_ps128(sums[0])));
  return 20.0 * kSteps * kSums * 2 * 8;
}

ANYATTN_TARGET("avx512f,avx512bf16") double dot_512() {
  __m512 sums[kSums];
  const __m512bh ones = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3f803f80));
#pragma GCC unroll 12
  for (int i = 0; i < kSums; ++i) sums[i] = _mm512_setzero_ps();
  for (uint64_t step = 0; step < 10 * kSteps; ++step) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) {
      ANYATTN_DISTINCT(sums[i]);
      sums[i] = _mm512_dpbf16_ps(sums[i], ones, ones);
    }
  }
#pragma GCC unroll 12
  for (int i = 1; i < kSums; ++i) sums[0] = _mm512_add_ps(sums[0], sums[i]);
  alignas(64) float lanes[16];
  _mm512_store_ps(lanes, sums[0]);
  keep(lanes[0]);
  return 10.0 * kSteps * kSums * 2 * 32;
}

// Two tiles of 16 rows times two of 16 columns: four sums, as a product of matrices would keep them.
ANYATTN_TARGET("amx-tile,amx-bf16") double dot_tiles() {
  struct alignas(64) Config {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } const config;
  alignas(64) char tile[1024] = {};
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, tile, 64);
  _tile_loadd(5, tile, 64);
  _tile_loadd(6, tile, 64);
  _tile_loadd(7, tile, 64);
  for (uint64_t step = 0; step < 3 * kSteps; ++step) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, tile, 64);
  _tile_release();
  keep(static_cast<uint64_t>(tile[0]));
  return 3.0 * kSteps * 4 * 2 * 16 * 16 * 32;
}

ANYATTN_TARGET("avx512f") void read_512(const char* memory, size_t bytes, size_t streams) {
  constexpr int kLines = 8;
  const size_t stream_bytes = bytes / streams / 512 * 512;
  __m512i sums[kLines];
#pragma GCC unroll 8
  for (int i = 0; i < kLines; ++i) sums[i] = _mm512_setzero_si512();
  for (size_t at = 0; at < stream_bytes; at += 512) {
    for (size_t s = 0; s < streams; ++s) {
      const char* line = memory + s * stream_bytes + at;
#pragma GCC unroll 8
      for (int i = 0; i < kLines; ++i) sums[i] = _mm512_or_si512(sums[i], _mm512_load_si512(line + 64 * i));
    }
  }
#pragma GCC unroll 8
  for (int i = 1; i < kLines; ++i) sums[0] = _mm512_or_si512(sums[0], sums[i]);
  alignas(64) uint64_t lanes[8];
  _mm512_store_si512(lanes, sums[0]);
  keep(lanes[0]);
}

#endif

// For every other processor: what the compiler makes of it.
double fma_plain() {
  float sums[64];
  for (float& sum : sums) sum = 1e-6f;
  for (uint64_t step = 0; step < kSteps; ++step) {
    for (float& sum : sums) sum = sum * 0.999f + 1e-6f;
  }
  float all = 0;
  for (const float sum : sums) all += sum;
  keep(all);
  return 2.0 * kSteps * 64;
}

void read_plain(const char* memory, size_t bytes, size_t streams) {
  constexpr size_t kWords = 64;
  const size_t stream_bytes = bytes / streams / 512 * 512;
  uint64_t sums[kWords] = {};
  for (size_t at = 0; at < stream_bytes; at += 512) {
    for (size_t s = 0; s < streams; ++s) {
      const auto* words = reinterpret_cast<const uint64_t*>(memory + s * stream_bytes + at);
      for (size_t i = 0; i < kWords; ++i) sums[i] |= words[i];
    }
  }
  uint64_t all = 0;
  for (const uint64_t sum : sums) all |= sum;
  keep(all);
}

void read_memory(const char* memory, size_t bytes, size_t streams) {
#if defined(__x86_64__)
  if (has_avx512()) return read_512(memory, bytes, streams);
#endif
  read_plain(memory, bytes, streams);
}

}  // namespace

const char* peak_name(Peak peak) {
  if (peak == Peak::kF32Fma) return "f32_fma";
  return peak == Peak::kBf16Dot ? "bf16_dot" : "bf16_amx";
}

bool has_peak(Peak peak) {
  if (peak == Peak::kF32Fma) return true;
#if defined(__x86_64__)
  if (peak == Peak::kBf16Dot) return has_avx512() && __builtin_cpu_supports("avx512bf16");
  static const bool tiles = __builtin_cpu_supports("amx-bf16") && ask_for_tiles();
  return tiles;
#else
  return false;
#endif
}

double run_peak(Peak peak) {
#if defined(__x86_64__)
  if (peak == Peak::kBf16Amx) return dot_tiles();
  if (peak == Peak::kBf16Dot) return dot_512();
  if (has_avx512()) return fma_512();
  if (has_avx2()) return fma_256();
#endif
  return fma_plain();
}

void read_in_order(const char* memory, size_t bytes) { read_memory(memory, bytes, 1); }
void read_as_streams(const char* memory, size_t bytes) { read_memory(memory, bytes, 8); }

}  // namespace anyattn::tools::bench
