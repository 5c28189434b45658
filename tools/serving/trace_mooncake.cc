// SPDX-License-Identifier: Apache-2.0
// The mooncake format, apart from the rest because it alone needs a JSON parser.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "common/failure.h"
#include "common/nearest.h"
#include "serving/trace.h"

namespace anyattn::tools {
namespace {

using Json = nlohmann::json;

constexpr size_t kLongestLine = 4 << 20;
constexpr uint64_t kLatestMs = uint64_t{1} << 52;  // exact as a double
const std::vector<std::string> kKeys = {"timestamp", "input_length", "output_length", "hash_ids"};

[[noreturn]] void fail(const std::string& name, size_t line, const std::string& what) {
  throw Failure(kExitUsage, fmt::format("{}:{}: {}", name, line, what));
}

// A value as an error shows it: short. What holds others is only named: writing it out recurses as deep as it is nested.
std::string shown(const Json& value) {
  if (value.is_structured()) return value.is_array() ? "a list" : "an object";
  return value.dump().substr(0, 40);
}

uint64_t whole_number(const Json& object, const char* key, uint64_t low, uint64_t high, const std::string& name, size_t line) {
  const auto found = object.find(key);
  if (found == object.end())
    fail(name, line, fmt::format("no '{}'; each line has timestamp, input_length, output_length, hash_ids", key));
  if (!found->is_number_unsigned() || found->get<uint64_t>() < low || found->get<uint64_t>() > high) {
    fail(name, line, fmt::format("{} is {}; allowed: a whole number from {} to {}", key, shown(*found), low, high));
  }
  return found->get<uint64_t>();
}

std::vector<uint64_t> content_blocks(const Json& object, uint32_t prompt_tokens, const std::string& name, size_t line) {
  const auto found = object.find("hash_ids");
  const size_t wanted = (prompt_tokens + kContentBlockTokens - 1) / kContentBlockTokens;
  if (found == object.end() || !found->is_array() || found->size() != wanted) {
    const std::string given = found == object.end() ? "missing"
                              : found->is_array()   ? fmt::format("{} ids", found->size())
                                                    : "no list";
    fail(name, line,
         fmt::format("hash_ids: {}; wanted: {}, one for each {} of the {} prompt tokens", given, wanted, kContentBlockTokens,
                     prompt_tokens));
  }
  std::vector<uint64_t> ids;
  ids.reserve(wanted);
  for (const Json& id : *found) {
    if (!id.is_number_unsigned())
      fail(name, line, fmt::format("hash_ids holds {}; allowed: whole numbers from 0 on", shown(id)));
    ids.push_back(id.get<uint64_t>());
  }
  return ids;
}

TraceRequest parse_line(std::string_view text, const std::string& name, size_t line) {
  const Json object = Json::parse(text, nullptr, false);
  if (!object.is_object()) fail(name, line, object.is_discarded() ? "no valid JSON" : "not a JSON object");
  for (const auto& [key, value] : object.items()) {
    if (std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end()) continue;
    const std::string close = nearest(key, kKeys);
    fail(name, line,
         fmt::format("unknown key '{}'{}", key.substr(0, 40), close.empty() ? "" : fmt::format("; did you mean '{}'?", close)));
  }
  TraceRequest request;
  request.arrival_s = static_cast<double>(whole_number(object, "timestamp", 0, kLatestMs, name, line)) / 1000;
  request.prompt_tokens = static_cast<uint32_t>(whole_number(object, "input_length", 1, kMaxRequestTokens, name, line));
  request.output_tokens = static_cast<uint32_t>(whole_number(object, "output_length", 1, kMaxRequestTokens, name, line));
  request.content_blocks = content_blocks(object, request.prompt_tokens, name, line);
  return request;
}

}  // namespace

Trace parse_mooncake(std::string_view text, const std::string& name) {
  Trace trace{name, {}};
  for (size_t line_number = 1; !text.empty(); ++line_number) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.size() > kLongestLine)
      fail(name, line_number, fmt::format("{} bytes in a line; at most {} are read", line.size(), kLongestLine));
    trace.requests.push_back(parse_line(line, name, line_number));
    const size_t count = trace.requests.size();
    if (count > 1 && trace.requests[count - 1].arrival_s < trace.requests[count - 2].arrival_s) {
      fail(name, line_number, "the timestamp lies before that of the line above; requests stand in order of arrival");
    }
  }
  if (trace.requests.empty()) throw Failure(kExitUsage, fmt::format("{}: no request in it", name));
  const double first = trace.requests.front().arrival_s;
  for (TraceRequest& request : trace.requests) request.arrival_s -= first;
  return trace;
}

}  // namespace anyattn::tools
