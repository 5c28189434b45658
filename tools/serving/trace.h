// SPDX-License-Identifier: Apache-2.0
// Requests of a serving trace: two file formats and built-in workloads. Included by run and its tests.
// Reads text only; knows no scheduler, model or device.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace anyattn::tools {

struct TraceRequest {
  double arrival_s = 0;                  // from the first request on
  uint32_t prompt_tokens = 0;            // > 0
  uint32_t output_tokens = 0;            // > 0
  std::vector<uint64_t> content_blocks;  // ids of prompt blocks of 512 tokens, equal ids = equal content; empty: all its own
};

inline constexpr uint32_t kContentBlockTokens = 512;
inline constexpr uint32_t kMaxRequestTokens = 16'777'216;  // of a prompt or an output

struct Trace {
  std::string name;
  std::vector<TraceRequest> requests;  // in order of arrival
};

// Both take the whole text of a file; `name` stands in every error as NAME:LINE. Throw Failure(kExitUsage) on the first line
// that is not what the format says.
//   azure     header TIMESTAMP,ContextTokens,GeneratedTokens; then 2023-11-16 18:15:46.6805900,374,44; LF or CR LF
//   mooncake  a JSON object a line: timestamp (ms), input_length, output_length, hash_ids (one per 512 prompt tokens)
Trace parse_azure(std::string_view text, const std::string& name);
Trace parse_mooncake(std::string_view text, const std::string& name);

// A file, or builtin:NAME. format: azure, mooncake, or empty: told by the first line. seed and builtin_requests serve built-in
// workloads only.
Trace load_trace(const std::string& where, const std::string& format, uint64_t seed, uint32_t builtin_requests);

}  // namespace anyattn::tools
