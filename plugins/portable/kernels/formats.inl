// SPDX-License-Identifier: Apache-2.0
// Quantised rows of a cache as sdk/ABI.md states them: codes, scales, the rotation of 4-bit rows; written by the lanes of a
// group together, read value by value. A group is kRowLanes lanes; element e of a row lies with lane e % kRowLanes.

// A set bit is a minus: bit 23 of the draws of MT19937 seeded with 0x9E3779B9.
AA_TABLE unsigned kMinus[kMaxRotated / 32] = {0x9a8ca6f2u, 0x7f7fca4eu, 0x59bbc293u, 0x9480abc7u, 0xb55b747eu, 0x54503bbeu,
                                              0xcdf467b7u, 0x05dfbc5fu, 0xb291e3ccu, 0x57563834u, 0xe46ae225u, 0x67fc4ca6u,
                                              0xcfc78691u, 0x32d9dff1u, 0x365fdb89u, 0x75625346u};
AA_FN float signed_by_rotation(float x, int e) { return kMinus[e / 32] >> e % 32 & 1 ? -x : x; }

// y[i] is element i * kRowLanes + the lane. Sums at distances 1, 2, 4, ...: every target rounds alike.
AA_FN void hadamard(float* y, int size) {
  constexpr int kCount = kMaxRotated / kRowLanes;
  AA_UNROLL
  for (int distance = 1; distance < kMaxRotated; distance *= 2) {
    if (distance >= size) break;
    AA_UNROLL
    for (int i = 0; i < kCount; ++i) {
      if (i * kRowLanes >= size) break;
      if (distance < kRowLanes) {
        const float other = from_lane_xor(y[i], distance);
        y[i] = row_lane() & distance ? other - y[i] : y[i] + other;
      } else if ((i & distance / kRowLanes) == 0) {
        const float low = y[i], high = y[i + distance / kRowLanes];
        y[i] = low + high;
        y[i + distance / kRowLanes] = low - high;
      }
    }
  }
}

// OCP 8-bit floats: to nearest even, saturated; NaN stays NaN.
AA_FN unsigned float8_of(float x, bool e5m2) {
  const int fraction = e5m2 ? 2 : 3, bias = e5m2 ? 15 : 7, drop = 23 - fraction;
  const unsigned bits = bits_of(x), magnitude = bits & 0x7fffffffu, largest = e5m2 ? 0x7bu : 0x7eu;
  const unsigned aligned = (unsigned)(128 - bias - fraction + 23) << 23;  // a float's last bit there is the smallest step
  unsigned code =
      ((magnitude + (1u << (drop - 1)) - 1 + (magnitude >> drop & 1)) >> drop) - ((unsigned)(127 - bias) << fraction);
  if (magnitude < (unsigned)(128 - bias) << 23) code = bits_of(float_of_bits(magnitude) + float_of_bits(aligned)) - aligned;
  if (code > largest) code = magnitude > 0x7f800000u ? 0x7fu : largest;
  return code | (bits >> 24 & 0x80u);
}
AA_FN float float_of_e4m3(unsigned code) {
  const unsigned magnitude = code & 0x7fu;
  const float value = magnitude == 0x7fu ? float_of_bits(0x7fc00000u)
                      : magnitude < 8    ? (float)magnitude * 0.001953125f
                                         : float_of_bits((magnitude << 20) + (120u << 23));
  return code & 0x80u ? -value : value;
}

AA_FN void put_word(char* at, unsigned word) {  // wherever it lies
  for (int b = 0; b < 4; ++b) at[b] = (char)(word >> 8 * b);
}

// Value e of a row, its own scale counted; 4-bit rows as they are rotated. scale_at: where the row's scale lies.
AA_FN float stored_value(const char* row, int scale_at, int e) {
  if (cfg.rows <= kBF16) return load_any(cfg.rows, row, e);
  const unsigned code = cfg.rows == kRowsInt4Scaled ? (unsigned char)row[e / 2] >> e % 2 * 4 & 15 : (unsigned char)row[e];
  if (cfg.rows == kRowsE4M3) return float_of_e4m3(code);
  if (cfg.rows == kRowsE5M2) return float_of_f16((unsigned short)(code << 8));
  if (cfg.rows == kRowsRecord) {
    if (e >= kRecordLatent) return float_of_bf16(((const unsigned short*)(row + kRecordRope))[e - kRecordLatent]);
    return float_of_e4m3(code) * float_of_bits(word_at(row + kRecordScales + e / kRecordTile * 4));
  }
  const unsigned word = word_at(row + scale_at);
  if (cfg.rows == kRowsInt4Scaled) return (float)((int)code - (int)(word & 15)) * float_of_bits(word & ~15u);
  return (cfg.rows == kRowsInt8Scaled ? (float)(signed char)code : float_of_e4m3(code)) * float_of_bits(word);
}

constexpr static unsigned kNanScale = 0x7fc00000u;  // of rows that hold a NaN or an infinity: they read as NaN

AA_FN int whole(float x, int least_code, int most_code) {
  const float code = x + (x < 0 ? -0.5f : 0.5f);
  return code<(float)least_code ? least_code : code>(float) most_code ? most_code : (int)code;
}

// Infinite where x is NaN.
AA_FN float magnitude_of(float x) {
  const unsigned magnitude = bits_of(x) & 0x7fffffffu;
  return magnitude < 0x7f800000u ? float_of_bits(magnitude) : kInfinity;
}

// Eight-bit codes with a scale of their own.
AA_FN void encode_scaled(char* to, char* scale_at, const char* from, int size, float least_scale) {
  const bool integers = cfg.rows == kRowsInt8Scaled;
  float top = 0;
  for (int e = row_lane(); e < size; e += kRowLanes) top = larger(top, magnitude_of(load_any(cfg.kind, from, e)));
  top = largest_of_group(top);
  const bool finite = top < kInfinity;
  const float scale = larger(top / (integers ? 127.f : 448.f), least_scale);
  for (int e = row_lane(); e < size; e += kRowLanes) {
    const float x = load_any(cfg.kind, from, e) / scale;
    to[e] = !finite ? 0 : integers ? (char)whole(x, -128, 127) : (char)float8_of(x, false);
  }
  if (row_lane() == 0) put_word(scale_at, finite ? bits_of(scale) : kNanScale);
}

AA_FN void encode_int4(char* to, const char* from, int size) {
  constexpr int kCount = kMaxRotated / kRowLanes;
  float y[kCount], low = kInfinity, high = -kInfinity, top = 0;
  for (int i = 0; i < kCount; ++i) {
    const int e = i * kRowLanes + row_lane();
    y[i] = e < size ? signed_by_rotation(load_any(cfg.kind, from, e), e) : 0;
  }
  hadamard(y, size);
  for (int i = 0; i < kCount; ++i) {
    if (i * kRowLanes + row_lane() >= size) continue;
    low = y[i] < low ? y[i] : low;
    high = larger(high, y[i]);
    top = larger(top, magnitude_of(y[i]));
  }
  low = -largest_of_group(-low);
  high = largest_of_group(high);
  const bool finite = largest_of_group(top) < kInfinity;
  const float scale = larger((high - low) / 15.f, 1e-6f);
  const int zero = finite ? whole(-low / scale, 0, 15) : 0;
  for (int i = 0; i < kCount; ++i) y[i] = finite ? (float)whole(y[i] / scale + (float)zero, 0, 15) : 0;
  for (int i = 0; i < kCount && i * kRowLanes < size; ++i) {
    const int e = i * kRowLanes + row_lane();
    const float next = kRowLanes > 1 ? from_lane_xor(y[i], 1) : y[i | 1];
    if (e % 2 == 0 && e < size) to[e / 2] = (char)((int)y[i] | (int)next << 4);
  }
  if (row_lane() == 0) put_word(to + size / 2, finite ? (bits_of(scale) & ~15u) | (unsigned)zero : kNanScale);
}

AA_FN void encode_row(char* to, const char* from, int size, float scale) {
  if (cfg.rows == kRowsInt4Scaled) return encode_int4(to, from, size);
  if (has_row_scales(cfg.rows)) return encode_scaled(to, to + size, from, size, 1e-6f);
  for (int e = row_lane(); e < size; e += kRowLanes) {
    const float x = load_any(cfg.kind, from, e) / scale;
    if (cfg.rows <= kBF16)
      store_any(cfg.rows, to, e, x);
    else
      to[e] = (char)float8_of(x, cfg.rows == kRowsE5M2);
  }
}

// The latent part of a record, or its rope part.
AA_FN void encode_record(char* to, const char* from, int part) {
  for (int i = row_group(); part == 0 && i < kRecordLatent / kRecordTile; i += row_groups())
    encode_scaled(to + i * kRecordTile, to + kRecordScales + 4 * i, from + i * kRecordTile * kElementBytes, kRecordTile,
                  0x1p-126f);
  for (int e = thread(); part == 1 && e < cfg.head_size - kRecordLatent; e += num_threads())
    store_any(kBF16, to + kRecordRope, e, load_any(cfg.kind, from, e));
}
