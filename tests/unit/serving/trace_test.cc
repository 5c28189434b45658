// SPDX-License-Identifier: Apache-2.0
#include "serving/trace.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "common/failure.h"

namespace {

using namespace anyattn::tools;

const std::string kHeader = "TIMESTAMP,ContextTokens,GeneratedTokens\n";

// The sentence a parser refuses a text with; empty where it does not.
template <class Parser>
std::string refusal(Parser parse, const std::string& text) {
  try {
    parse(text, "t");
    return "";
  } catch (const Failure& failure) {
    CHECK(failure.code() == kExitUsage);
    return failure.what();
  }
}

TEST_CASE("azure_reads_stamps_to_the_nanosecond_with_either_line_end") {
  for (const char* end : {"\n", "\r\n"}) {
    const std::string text = std::string("TIMESTAMP,ContextTokens,GeneratedTokens") + end +
                             "2023-11-16 18:15:46.6805900,374,44" + end + "2023-11-16 18:15:50.9951690,396,109" + end +
                             "2023-11-17 00:00:00,5,1";
    const Trace trace = parse_azure(text, "t");
    REQUIRE(trace.requests.size() == 3);
    CHECK(trace.requests[0].arrival_s == 0);
    CHECK(trace.requests[1].arrival_s == doctest::Approx(4.3145790).epsilon(1e-12));
    CHECK(trace.requests[2].arrival_s == doctest::Approx(20653.31941).epsilon(1e-12));
    CHECK(trace.requests[1].prompt_tokens == 396);
    CHECK(trace.requests[1].output_tokens == 109);
    CHECK(trace.requests[1].content_blocks.empty());
  }
}

TEST_CASE("azure_refuses_each_broken_line_with_its_number") {
  struct LineCase {
    const char* line;
    const char* part;
  };
  const LineCase cases[] = {
      {"2023-11-16 18:15:46,1", "t:2: "},
      {"2023-11-16 18:15:46,1,2,3", "t:2: "},
      {"2023-11-16T18:15:46,1,2", "t:2: "},
      {"2023-13-16 18:15:46,1,2", "t:2: "},
      {"2023-02-30 18:15:46,1,2", "t:2: "},
      {"2023-11-16 24:15:46,1,2", "t:2: "},
      {"2023-11-16 18:15:46.,1,2", "t:2: "},
      {"2023-11-16 18:15:46.1234567890,1,2", "t:2: "},
      {"2023-11-16 18:15:46.-5,1,2", "t:2: "},
      {"2023-11-16 18:15:46,0,2", "both 1 to 16777216"},
      {"2023-11-16 18:15:46,1,0", "t:2: "},
      {"2023-11-16 18:15:46,-1,2", "t:2: "},
      {"2023-11-16 18:15:46,1 ,2", "t:2: "},
      {"2023-11-16 18:15:46,1.5,2", "t:2: "},
      {"2023-11-16 18:15:46,99999999999,2", "t:2: "},
      {"", "t:2: "},
      {"\x01\x02\xff", "t:2: '\?\?\?'"},
  };
  for (const LineCase& c : cases) {
    CAPTURE(c.line);
    const std::string text = refusal(parse_azure, kHeader + c.line + "\n");
    CAPTURE(text);
    CHECK(text.find(c.part) != std::string::npos);
  }
  CHECK(refusal(parse_azure, "a,b,c\n").starts_with("t:1: the header is 'a,b,c'"));
  CHECK(refusal(parse_azure, kHeader) == "t: no request after the header");
  CHECK(refusal(parse_azure, "").starts_with("t:1:"));
  const std::string backwards = kHeader + "2023-11-16 18:15:46,1,2\n2023-11-16 18:15:45,1,2\n";
  CHECK(refusal(parse_azure, backwards).starts_with("t:3: the stamp lies before"));
}

TEST_CASE("mooncake_reads_lengths_and_content_blocks") {
  const std::string text =
      "{\"timestamp\": 1000, \"input_length\": 513, \"output_length\": 7, \"hash_ids\": [4, 9]}\n"
      "{\"hash_ids\": [4], \"timestamp\": 1250, \"input_length\": 512, \"output_length\": 1}";
  const Trace trace = parse_mooncake(text, "t");
  REQUIRE(trace.requests.size() == 2);
  CHECK(trace.requests[0].arrival_s == 0);
  CHECK(trace.requests[1].arrival_s == 0.25);
  CHECK(trace.requests[0].prompt_tokens == 513);
  CHECK(trace.requests[0].content_blocks == std::vector<uint64_t>{4, 9});
}

TEST_CASE("mooncake_refuses_each_broken_line_with_its_number") {
  struct LineCase {
    const char* line;
    const char* text;
  };
  const LineCase cases[] = {
      {"", "t:2: no valid JSON"},
      {"{", "t:2: no valid JSON"},
      {"[1]", "t:2: not a JSON object"},
      {R"({"timestamp": 1, "input_length": 5, "output_length": 1, "hash_id": [1]})",
       "t:2: unknown key 'hash_id'; did you mean 'hash_ids'?"},
      {R"({"timestamp": 1, "input_length": 5, "output_length": 1})",
       "t:2: hash_ids: missing; wanted: 1, one for each 512 of the 5 prompt tokens"},
      {R"({"timestamp": 1, "input_length": 5, "output_length": 1, "hash_ids": 3})",
       "t:2: hash_ids: no list; wanted: 1, one for each 512 of the 5 prompt tokens"},
      {R"({"timestamp": 1, "input_length": 513, "output_length": 1, "hash_ids": [1]})",
       "t:2: hash_ids: 1 ids; wanted: 2, one for each 512 of the 513 prompt tokens"},
      {R"({"timestamp": 1, "input_length": 5, "output_length": 1, "hash_ids": [-1]})",
       "t:2: hash_ids holds -1; allowed: whole numbers from 0 on"},
      {R"({"timestamp": 1, "input_length": 0, "output_length": 1, "hash_ids": []})",
       "t:2: input_length is 0; allowed: a whole number from 1 to 16777216"},
      {R"({"timestamp": 1, "input_length": 5.0, "output_length": 1, "hash_ids": [1]})",
       "t:2: input_length is 5.0; allowed: a whole number from 1 to 16777216"},
      {R"({"timestamp": 1, "input_length": "5", "output_length": 1, "hash_ids": [1]})",
       "t:2: input_length is \"5\"; allowed: a whole number from 1 to 16777216"},
      {R"({"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [1]})",
       "t:2: the timestamp lies before that of the line above; requests stand in order of arrival"},
  };
  const std::string good = R"({"timestamp": 1, "input_length": 5, "output_length": 1, "hash_ids": [1]})";
  for (const LineCase& c : cases) {
    CAPTURE(c.line);
    CHECK(refusal(parse_mooncake, good + "\n" + c.line + "\n") == c.text);
  }
  CHECK(refusal(parse_mooncake, "") == "t: no request in it");
  CHECK(refusal(parse_mooncake, std::string(100000, '[')) == "t:1: no valid JSON");
  // As deep as a line may be: nothing on the way recurses.
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  const std::string rest = R"(, "output_length": 1, "hash_ids": [)" + deep + "]}";
  CHECK(refusal(parse_mooncake, R"({"timestamp": 1, "input_length": )" + deep + rest).find("input_length is a list; allowed") !=
        std::string::npos);
  CHECK(refusal(parse_mooncake, R"({"timestamp": 1, "input_length": 5)" + rest) ==
        "t:1: hash_ids holds a list; allowed: whole numbers from 0 on");
}

TEST_CASE("traces_cut_anywhere_are_read_or_refused_and_never_crash") {
  const std::string azure = kHeader + "2023-11-16 18:15:46.6805900,374,44\r\n2023-11-16 18:15:50.9951690,396,109\r\n";
  const std::string mooncake = R"({"timestamp": 1, "input_length": 5, "output_length": 1, "hash_ids": [1]})";
  for (size_t cut = 0; cut <= azure.size(); ++cut) refusal(parse_azure, azure.substr(0, cut));
  for (size_t cut = 0; cut < mooncake.size(); ++cut) CHECK(refusal(parse_mooncake, mooncake.substr(0, cut)) != "");
  for (size_t i = 0; i < azure.size(); ++i) {
    std::string flipped = azure;
    flipped[i] = static_cast<char>(flipped[i] ^ 0x15);
    refusal(parse_azure, flipped);
  }
}

TEST_CASE("builtin_traces_are_deterministic_and_follow_their_percentiles") {
  constexpr uint32_t kCount = 20000;
  const Trace chat = load_trace("builtin:chat", "", 5, kCount);
  const Trace again = load_trace("builtin:chat", "", 5, kCount);
  const Trace other = load_trace("builtin:chat", "", 6, kCount);
  REQUIRE(chat.requests.size() == kCount);
  bool same = true, different = false;
  std::vector<uint32_t> prompts;
  double sum = 0;
  for (size_t i = 0; i < kCount; ++i) {
    same = same && chat.requests[i].prompt_tokens == again.requests[i].prompt_tokens &&
           chat.requests[i].arrival_s == again.requests[i].arrival_s;
    different = different || chat.requests[i].prompt_tokens != other.requests[i].prompt_tokens;
    CHECK(chat.requests[i].prompt_tokens >= 2);
    CHECK(chat.requests[i].output_tokens >= 7);
    sum += chat.requests[i].prompt_tokens;
    prompts.push_back(chat.requests[i].prompt_tokens);
  }
  CHECK(same);
  CHECK(different);
  std::sort(prompts.begin(), prompts.end());
  CHECK(prompts[kCount / 2] == doctest::Approx(1020).epsilon(0.15));
  CHECK(prompts[kCount * 9 / 10] == doctest::Approx(2735).epsilon(0.05));
  CHECK(sum / kCount == doctest::Approx(1155).epsilon(0.05));  // published too, and not put in
  CHECK(chat.requests.back().arrival_s == doctest::Approx(kCount / 5.56).epsilon(0.1));
  CHECK_THROWS_WITH_AS(load_trace("builtin:poem", "", 0, 1), "--trace builtin:poem: allowed: builtin:chat, builtin:code",
                       Failure);
  CHECK_THROWS_AS(load_trace("builtin:chat", "azure", 0, 1), Failure);
  CHECK_THROWS_AS(load_trace("/nonexistent/trace.csv", "", 0, 1), Failure);
  CHECK_THROWS_AS(load_trace("/", "", 0, 1), Failure);
}

// The real files, where they are.
TEST_CASE("real_traces_are_read_whole") {
  const char* variable = std::getenv("ANYATTN_SHARED_DIR");
  const std::filesystem::path data = std::filesystem::path(variable ? variable : ANYATTN_SOURCE_DIR "/../shared") / "data";
  if (!std::filesystem::exists(data)) {
    REQUIRE_MESSAGE(!std::getenv("ANYATTN_REQUIRE_ALL"), "no shared data");
    MESSAGE("SKIPPED: no shared data");
    return;
  }
  struct FileCase {
    const char* file;
    size_t requests;
    uint32_t largest_prompt;
  };
  for (const FileCase c : {FileCase{"azure_llm_2023_conv.csv", 19366, 14050},
                           {"azure_llm_2023_code.csv", 8819, 7437},
                           {"mooncake_conversation_20min.jsonl", 3658, 123192},
                           {"mooncake_synthetic.jsonl", 3993, 191378}}) {
    CAPTURE(c.file);
    const Trace trace = load_trace((data / c.file).string(), "", 0, 0);
    CHECK(trace.requests.size() == c.requests);
    uint32_t largest = 0;
    for (const TraceRequest& request : trace.requests) largest = std::max(largest, request.prompt_tokens);
    CHECK(largest == c.largest_prompt);
  }
}

}  // namespace
