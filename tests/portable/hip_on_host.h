// SPDX-License-Identifier: Apache-2.0
// AMD's words on the host: what hip.h and mfma.h take from the compiler, for a program whose threads are contexts that one after
// the other goes on until it waits for others. v_mfma_f32_16x16x16 is computed from the registers of a wave's 64 lanes as AMD's
// Matrix Instruction Calculator lays them out, float16 below 2^-14 taken for 0 as gfx90a does. Included by wave_*.cc before the
// kernels; knows none of them.
#pragma once

#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

namespace anyattn::portable::on_host {

constexpr int kWaveLanes = 64;

// One program: its threads, each with its own stack. run() returns when all have ended.
class Block {
 public:
  // Throws where threads wait for each other for ever.
  static void run(int threads, const std::function<void()>& body);
  static Block& current() { return *running; }

  int thread() const { return thread_; }
  int threads() const { return static_cast<int>(contexts_.size()); }
  void barrier() { meet(all_, threads()); }
  void wave_barrier() { meet(wave().lanes, kWaveLanes); }
  int from_lane(int byte_of_lane, int value);
  // Lane l's four results of D = A B + C, from every lane's four terms of A and B.
  template <class Sums, class Terms>
  Sums multiply(const Terms& a, const Terms& b, Sums c, float (*value_of)(uint16_t)) {
    Wave& of = wave();
    of.a[lane()] = __builtin_bit_cast(uint64_t, a);
    of.b[lane()] = __builtin_bit_cast(uint64_t, b);
    wave_barrier();
    for (int r = 0; r < 4; ++r)
      for (int k = 0; k < 16; ++k) {
        const int row = 4 * (lane() / 16) + r, column = lane() % 16;
        c[r] += value_of(term(of.a, row, k)) * value_of(term(of.b, column, k));
      }
    wave_barrier();
    return c;
  }

 private:
  struct Meeting {
    int arrived = 0, number = 0;
  };
  struct Wave {
    Meeting lanes;
    uint64_t a[kWaveLanes], b[kWaveLanes];
    int value[kWaveLanes];
  };
  // Term k of row (of A) or column (of B) `line`: lane line + 16 (k / 4) holds it as its number k % 4.
  static uint16_t term(const uint64_t* of, int line, int k) {
    return static_cast<uint16_t>(of[line + 16 * (k / 4)] >> 16 * (k % 4));
  }
  int lane() const { return thread_ % kWaveLanes; }
  Wave& wave() { return waves_[static_cast<size_t>(thread_ / kWaveLanes)]; }
  void meet(Meeting& at, int members);
  static void begin();

  static Block* running;
  const std::function<void()>* body_ = nullptr;
  std::vector<ucontext_t> contexts_;
  std::vector<char> ended_;
  std::vector<Wave> waves_;
  Meeting all_;
  ucontext_t turns_{};
  int thread_ = 0;
  int64_t progress_ = 0;  // meetings held, threads ended
};

inline float value_of_bf16(uint16_t bits) { return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16); }
inline float value_of_f16(uint16_t bits) {
  return (bits & 0x7c00u) == 0 ? 0 : static_cast<float>(__builtin_bit_cast(_Float16, bits));
}

}  // namespace anyattn::portable::on_host

#define __device__
#define __global__
#define __shared__ static
#define __launch_bounds__(threads, blocks)
#define AA_ON_HOST anyattn::portable::on_host::Block::current()
#define __builtin_amdgcn_workgroup_id_x() 0
#define __builtin_amdgcn_workitem_id_x() AA_ON_HOST.thread()
#define __builtin_amdgcn_workgroup_size_x() AA_ON_HOST.threads()
#define __builtin_amdgcn_fence(order, scope)
#define __builtin_amdgcn_s_barrier() AA_ON_HOST.barrier()
#define __builtin_amdgcn_wave_barrier() AA_ON_HOST.wave_barrier()
#define __builtin_amdgcn_mbcnt_lo(mask, sum) ((sum) + AA_ON_HOST.thread() % anyattn::portable::on_host::kWaveLanes)
#define __builtin_amdgcn_mbcnt_hi(mask, sum) (sum)
#define __builtin_amdgcn_ds_bpermute(byte_of_lane, value) AA_ON_HOST.from_lane(byte_of_lane, value)
#define __builtin_amdgcn_exp2f(x) std::exp2f(x)
#define __builtin_amdgcn_logf(x) std::log2f(x)
#define __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, c, x, y, z) \
  AA_ON_HOST.multiply(a, b, c, anyattn::portable::on_host::value_of_bf16)
#define __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, x, y, z) \
  AA_ON_HOST.multiply(a, b, c, anyattn::portable::on_host::value_of_f16)
