// SPDX-License-Identifier: Apache-2.0
#include "common/json_output.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/failure.h"
#include "common/whole_file.h"

namespace anyattn::tools {

JsonOutput::JsonOutput(const JsonOptions& options) : options_(options) {
  if (options_.file.empty()) return;
  std::error_code ignored;
  const std::filesystem::path path(options_.file);
  if (std::filesystem::is_directory(path, ignored)) {
    throw Failure(kExitUsage, fmt::format("--json {}: a folder; name a file in it", options_.file));
  }
  if (path.has_parent_path() && !std::filesystem::is_directory(path.parent_path(), ignored)) {
    throw Failure(kExitUsage, fmt::format("--json {}: no such folder: {}", options_.file, path.parent_path().string()));
  }
  const bool holds_something = std::filesystem::is_regular_file(path, ignored) && std::filesystem::file_size(path, ignored) > 0;
  if (!holds_something) return;
  std::ifstream in(path, std::ios::binary);
  if (!in || !nlohmann::json::accept(in)) {
    throw Failure(kExitUsage, fmt::format("--json {}: the file exists and holds no JSON, so it is not written over; "
                                          "name another file or remove this one",
                                          options_.file));
  }
}

void JsonOutput::write(const nlohmann::ordered_json& value) const {
  if (!options_.wanted) return;
  // Texts come from files of others: bytes that are no UTF-8 are replaced, never thrown over.
  const std::string text = value.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  const bool to_stdout = options_.file.empty();
  std::error_code ignored;
  const auto kind = std::filesystem::status(options_.file, ignored).type();
  // A pipe or a device is written to as it stands.
  if (!to_stdout && (kind == std::filesystem::file_type::not_found || kind == std::filesystem::file_type::regular)) {
    const std::filesystem::path target = std::filesystem::weakly_canonical(options_.file, ignored);
    write_whole(ignored ? options_.file : target.string(), text);
    return;
  }
  std::FILE* out = to_stdout ? stdout : std::fopen(options_.file.c_str(), "w");
  const bool written = out && std::fwrite(text.data(), 1, text.size(), out) == text.size() && std::fflush(out) == 0;
  const int reason = errno;
  const bool closed = to_stdout || (out && std::fclose(out) == 0);
  if (!written || !closed) {
    throw Failure(kExitFailed, fmt::format("--json {}: cannot be written: {}", to_stdout ? "standard output" : options_.file,
                                           std::strerror(written ? errno : reason)));
  }
}

}  // namespace anyattn::tools
