// SPDX-License-Identifier: Apache-2.0
#include "bench/peers.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "anyattn/dtypes.hpp"

namespace anyattn::tools::bench {
namespace {

constexpr uint64_t kMostScores = uint64_t{1} << 29;  // values of the score matrix; more would not be a cache's affair

std::optional<std::filesystem::path> program_of(const char* peer) {
  std::error_code error;
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path path = own.parent_path().parent_path() / "lib/anyattn/bench" / fmt::format("peer_{}", peer);
  return std::filesystem::exists(path, error) ? std::optional(path) : std::nullopt;
}

// Standard output of a program with its threads limited; nothing where it did not end well.
std::optional<std::string> output_of(std::vector<std::string> command, uint32_t threads) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) return std::nullopt;
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::vector<std::string> variables = {fmt::format("OMP_NUM_THREADS={}", threads),
                                        fmt::format("OPENBLAS_NUM_THREADS={}", threads)};
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  pid_t child = 0;
  const int failed = posix_spawn(&child, arguments[0], &actions, nullptr, arguments.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string out;
  std::array<char, 256> part{};
  for (ssize_t count = 0; failed == 0 && (count = read(ends[0], part.data(), part.size())) > 0;)
    out.append(part.data(), static_cast<size_t>(count));
  close(ends[0]);
  int status = 0;
  if (failed != 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0) return std::nullopt;
  return out;
}

}  // namespace

std::vector<Peer> measure_peers(const Point& point, const std::string& kv_cache_dtype, uint32_t threads, uint32_t samples,
                                double min_time_s) {
  const anyattn_problem& fields = point.problem.fields;
  const std::string dtype = dtype_name(fields.q_dtype);
  const uint64_t batch = uint64_t{point.num_reqs} * fields.num_kv_heads;
  const uint64_t rows = uint64_t{point.query_len} * (fields.num_q_heads / fields.num_kv_heads);
  const bool plain = !point.problem.has(ANYATTN_FEATURE_MLA) && !point.problem.has(ANYATTN_FEATURE_WINDOW) &&
                     !point.problem.has(ANYATTN_FEATURE_CHUNKED_LOCAL);
  if (!plain || dtype != kv_cache_dtype || batch * rows * point.seq_len > kMostScores) return {};
  std::vector<Peer> peers;
  for (const char* name : {"onednn", "openblas"}) {
    const auto program = program_of(name);
    if (!program || (dtype != "float32" && dtype != "bfloat16")) continue;
    const auto out = output_of({program->string(), fmt::to_string(batch), fmt::to_string(rows), fmt::to_string(point.seq_len),
                                fmt::to_string(fields.head_size), fmt::to_string(fields.head_size_v), dtype,
                                fmt::to_string(samples), fmt::to_string(min_time_s)},
                               threads);
    Peer peer{name, 0, 0};
    if (out && std::sscanf(out->c_str(), "%lf %lf", &peer.scores_us, &peer.values_us) == 2) peers.push_back(std::move(peer));
  }
  return peers;
}

}  // namespace anyattn::tools::bench
