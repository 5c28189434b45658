// SPDX-License-Identifier: Apache-2.0
// Calls of more rows or programs than 31 bits count: one sentence, before any memory is looked at.
#include <doctest/doctest.h>

#include <anyattn/runtime.hpp>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "prebuild/absent_device.h"

namespace {

using anyattn::Tensor;
using anyattn::portable::OpenPlugin;
using anyattn::portable::Shape;

constexpr int64_t kHeads = 8;
alignas(256) char memory[4096] = {};  // of every tensor; nobody reads so far

Tensor rows(uint32_t dtype, std::initializer_list<int64_t> shape) { return {memory, dtype, shape}; }

template <class Call>
std::string answer(const Call& call) {
  OpenPlugin plugin(ANYATTN_PORTABLE_CPU_PLUGIN, {});
  anyattn_device_facts facts{};
  facts.struct_size = ANYATTN_DEVICE_FACTS_SIZE;
  facts.device_kind = ANYATTN_DEVICE_CPU;
  facts.architecture = facts.name = "cpu";
  std::string text = "accepted";
  plugin.with_impl(facts, Shape{kHeads, 0, 576, 16, ANYATTN_DTYPE_BFLOAT16},
                   [&](const anyattn_backend& of, anyattn_impl* impl) {
                     if (call(of, impl, plugin.error()) != ANYATTN_OK) text = plugin.error_text();
                   });
  return text;
}

std::string merge(int64_t tokens) {
  const Tensor out = rows(ANYATTN_DTYPE_BFLOAT16, {tokens, kHeads, 128}), lse = rows(ANYATTN_DTYPE_FLOAT32, {tokens, kHeads});
  const anyattn_state part{ANYATTN_STATE_SIZE, ANYATTN_LSE_NATURAL, out, lse};
  const anyattn_merge_args args{ANYATTN_MERGE_ARGS_SIZE, ANYATTN_LSE_NATURAL, 1, sizeof part, &part, out, {}, nullptr};
  return answer(
      [&](const anyattn_backend& of, anyattn_impl* impl, anyattn_error* error) { return of.merge_states(impl, &args, error); });
}

std::string prefill(uint32_t num_reqs, uint32_t max_query_len, int64_t tokens) {
  const Tensor q = rows(ANYATTN_DTYPE_BFLOAT16, {tokens, kHeads, 192}), k = rows(ANYATTN_DTYPE_BFLOAT16, {1, kHeads, 192}),
               v = rows(ANYATTN_DTYPE_BFLOAT16, {1, kHeads, 128}), out = rows(ANYATTN_DTYPE_BFLOAT16, {tokens, kHeads, 128});
  std::vector<char> scratch(4 << 20);
  void* at = scratch.data();
  size_t room = scratch.size();
  std::align(256, 1, at, room);
  const auto* starts = reinterpret_cast<const int32_t*>(memory);
  const anyattn_mha_args args{ANYATTN_MHA_ARGS_SIZE,
                              ANYATTN_LSE_NATURAL,
                              0.1,
                              num_reqs,
                              1,
                              max_query_len,
                              1,
                              starts,
                              starts,
                              q,
                              k,
                              v,
                              out,
                              {},
                              at,
                              nullptr};
  return answer(
      [&](const anyattn_backend& of, anyattn_impl* impl, anyattn_error* error) { return of.forward_mha(impl, &args, error); });
}

}  // namespace

TEST_CASE("calls_of_more_programs_than_31_bits_count_are_refused") {
  const std::string most = "; allowed: at most 2147483647; ask for fewer at a time";
  CHECK(merge(int64_t{1} << 31) == "PORTABLE_MLA: merge_states: 2147483648 tokens" + most);
  CHECK(merge(int64_t{1} << 28) == "PORTABLE_MLA: merge_states: 2147483648 rows" + most);
  CHECK(prefill(1, 1, int64_t{1} << 31) == "PORTABLE_MLA: forward_mha: 2147483648 tokens" + most);
  CHECK(prefill(1u << 31, 1, 1) == "PORTABLE_MLA: forward_mha: 2147483648 requests" + most);
  const std::string blocks = prefill(1u << 30, 1u << 20, 1);
  CHECK_MESSAGE(blocks.find(" blocks of rows" + most) != std::string::npos, blocks);
  const std::string programs = prefill(1u << 28, 1, 1);  // eight heads
  CHECK_MESSAGE(programs == "PORTABLE_MLA: forward_mha: 2147483649 programs" + most, programs);
}
