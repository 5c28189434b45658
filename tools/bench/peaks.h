// SPDX-License-Identifier: Apache-2.0
// Loops that do one thing as fast as one core can: read memory, multiply and add. Included by limits.
// Times nothing. What the processor lacks is answered, never tried.
#pragma once

#include <cstddef>
#include <cstdint>

namespace anyattn::tools::bench {

enum class Peak { kF32Fma, kBf16Dot, kBf16Amx };
inline constexpr Peak kPeaks[] = {Peak::kF32Fma, Peak::kBf16Dot, Peak::kBf16Amx};

const char* peak_name(Peak peak);  // f32_fma, bf16_dot, bf16_amx

// The widest form of it that this processor and its system can run; false: none.
bool has_peak(Peak peak);

// Runs the loop for some milliseconds; the floating-point operations it did. has_peak(peak) holds.
double run_peak(Peak peak);

// Reads every byte of [memory, memory + bytes), 64-byte aligned, in order; the tail below 512 bytes is left out.
void read_in_order(const char* memory, size_t bytes);
// The same as eight streams side by side.
void read_as_streams(const char* memory, size_t bytes);

}  // namespace anyattn::tools::bench
