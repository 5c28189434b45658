// SPDX-License-Identifier: Apache-2.0
// The kernels of a device: each program of a launch is one block of threads. AA_PART: which of them this module holds.

#if AA_PART == 0
extern "C" __global__ void __launch_bounds__(launched_threads(cfg, tile), AA_MIN_BLOCKS)
    portable_attend(const __grid_constant__ AttendArgs a) {
  extern __shared__ __align__(1024) char memory[];
  const Tiles tiles{memory, shared_at(memory)};
  if (begin_feeding(tiles)) {
    part_registers(true);
    attend(a, Tiles{memory, shared_at(memory), true}, AA_PROGRAM);
  } else {
    part_registers(false);
    AA_DIRECT ? attend_direct(a, tiles, AA_PROGRAM) : attend(a, tiles, AA_PROGRAM);
  }
}
#elif AA_PART == 1
extern "C" __global__ void portable_merge_parts(const __grid_constant__ AttendArgs a) {
  merge_parts(a, AA_PROGRAM / kMergeShares, AA_PROGRAM % kMergeShares, kMergeShares);
}
#elif AA_PART == 2
extern "C" __global__ void portable_plan(const __grid_constant__ PlanArgs a) { plan(a); }
#elif AA_PART == 3
extern "C" __global__ void portable_store(const __grid_constant__ StoreArgs a) { store_token(a, AA_PROGRAM); }
extern "C" __global__ void portable_gather(const __grid_constant__ GatherArgs a) {
  if (cfg.latent) gather_row(a, AA_PROGRAM);
}
#else
extern "C" __global__ void portable_merge(const __grid_constant__ MergeArgs a) {
  merge_row(a, AA_PROGRAM / a.num_heads, AA_PROGRAM % a.num_heads);
}
#endif
