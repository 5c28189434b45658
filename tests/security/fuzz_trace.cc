// SPDX-License-Identifier: Apache-2.0
// Any bytes as a serving trace of either format.
#include <string_view>

#include "common/failure.h"
#include "security/harnesses.h"
#include "serving/trace.h"

namespace anyattn::fuzzing {
namespace {

template <class Parser>
void read(Parser parse, std::string_view text) {
  try {
    const tools::Trace trace = parse(text, "f");
    require(!trace.requests.empty() && trace.requests.front().arrival_s == 0, "a trace begins with a request at 0 s");
    double last = 0;
    for (const tools::TraceRequest& request : trace.requests) {
      require(request.arrival_s >= last, "requests stand in order");
      require(request.prompt_tokens > 0 && request.prompt_tokens <= tools::kMaxRequestTokens, "a prompt has tokens");
      require(request.output_tokens > 0 && request.output_tokens <= tools::kMaxRequestTokens, "an output has tokens");
      last = request.arrival_s;
    }
  } catch (const tools::Failure& failure) {
    require(failure.code() == tools::kExitUsage && std::string_view(failure.what()).starts_with("f:"),
            "a refusal names the file");
  }
}

}  // namespace

void run_trace(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  read(tools::parse_azure, text);
  read(tools::parse_mooncake, text);
}

}  // namespace anyattn::fuzzing
