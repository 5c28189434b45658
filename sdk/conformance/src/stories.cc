// SPDX-License-Identifier: Apache-2.0
#include "stories.h"

#include <cstring>
#include <fstream>

namespace anyattn::conformance {
namespace {

std::vector<float> read_floats(std::istream& in, size_t count) {
  std::vector<float> values(count);
  in.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(count * sizeof(float)));
  return values;
}

std::vector<float> rows(const std::vector<float>& from, size_t first, size_t count, size_t width) {
  const auto begin = from.begin() + static_cast<ptrdiff_t>(first * width);
  return {begin, begin + static_cast<ptrdiff_t>(count * width)};
}

}  // namespace

void read_stories(const Case& c, const std::string& file, PlainData* data) {
  if (file.empty()) throw DataMissing("data=stories: no dump of the small model was given (--stories FILE)");
  std::ifstream in(file, std::ios::binary);
  char magic[8] = {};
  int32_t head[5] = {};  // layers, tokens, q_heads, kv_heads, head_size
  in.read(magic, sizeof magic);
  in.read(reinterpret_cast<char*>(head), sizeof head);
  if (!in || std::memcmp(magic, "ATTNREF1", 8) != 0) throw DataMissing("data=stories: " + file + " is no attention dump");
  const auto tokens = static_cast<size_t>(head[1]);
  const auto q_row = static_cast<size_t>(head[2]) * static_cast<size_t>(head[4]);
  const auto kv_row = static_cast<size_t>(head[3]) * static_cast<size_t>(head[4]);
  const bool same = head[2] == c.num_q_heads && head[3] == c.num_kv_heads && head[4] == c.head_size;
  if (!same || c.lens.size() != 1 || c.layer >= head[0] || static_cast<size_t>(c.lens[0].key_len) > tokens) {
    throw DataMissing("data=stories: " + file + " has q=" + std::to_string(head[2]) + " kv=" + std::to_string(head[3]) +
                      " d=" + std::to_string(head[4]) + ", " + std::to_string(head[0]) + " layers, " + std::to_string(tokens) +
                      " tokens; the case asks for others, or for more than one request");
  }
  const size_t layer_bytes = tokens * (2 * q_row + 2 * kv_row) * sizeof(float);
  in.seekg(static_cast<std::streamoff>(layer_bytes) * c.layer, std::ios::cur);
  const auto q = read_floats(in, tokens * q_row);
  const auto k = read_floats(in, tokens * kv_row);
  const auto v = read_floats(in, tokens * kv_row);
  if (!in) throw DataMissing("data=stories: " + file + " is cut short");
  const auto query_len = static_cast<size_t>(c.lens[0].query_len);
  const auto key_len = static_cast<size_t>(c.lens[0].key_len);
  data->q = rows(q, key_len - query_len, query_len, q_row);
  data->k = rows(k, 0, key_len, kv_row);
  data->v = rows(v, 0, key_len, kv_row);
}

}  // namespace anyattn::conformance
