// SPDX-License-Identifier: Apache-2.0
#include "loader/store.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <vector>

#include "discovery/content.h"
#include "loader/store_limits.h"
#include "trust/private_folder.h"

namespace anyattn::loader {
namespace {

namespace fs = std::filesystem;
using discovery::Stage;

[[noreturn]] void refuse(Stage stage, std::string reason, std::string remedy) {
  throw Refusal{stage, ANYATTN_NOT_FOUND, std::move(reason), std::move(remedy)};
}

void want(const std::string& obstacle) {
  if (obstacle.empty()) return;
  refuse(Stage::kTrust, fmt::format("no private copy can be made: {}", obstacle),
         "give this user a folder there with mode 0700, and room");
}

// The bytes of a file, which must be those that were checked.
std::vector<std::byte> read_checked(const std::string& path, const std::string& hash) {
  discovery::FileContent content = discovery::read_content(path);
  if (!content.error.empty())
    refuse(Stage::kOpen, fmt::format("the file {} {}", path, content.error), "check what lies at this path");
  if (content.hash != hash)
    refuse(Stage::kOpen, fmt::format("the file {} changed after it was checked", path),
           "register it again, or make a new runtime");
  return std::move(content.bytes);
}

void put_file(const std::string& target, const std::string& source, const std::string& hash) {
  std::error_code error;
  if (fs::exists(target, error)) {
    const discovery::FileContent there = discovery::read_content(target);
    if (there.error.empty() && there.hash == hash) return;
  }
  want(trust::write_private_file(target, read_checked(source, hash), 0500));
}

// Whatever lies beside the file and was not copied, as links.
void link_neighbours(const fs::path& folder, const fs::path& beside) {
  std::error_code error;
  for (fs::directory_iterator entry(beside, error); !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::error_code failed;
    fs::create_symlink(entry->path(), folder / entry->path().filename(), failed);
    if (failed && failed != std::errc::file_exists) want(folder.string() + ": " + failed.message());
  }
  if (error) want(beside.string() + ": " + error.message());
}

}  // namespace

std::string put_copy(const std::string& store, const discovery::Candidate& candidate) {
  std::string all = candidate.content;
  for (const discovery::Companion& companion : candidate.companions) all += "\n" + companion.hash + " " + companion.name;
  const fs::path beside = fs::path(candidate.path).parent_path();
  if (!candidate.must_be_copied) all += "\n" + beside.string();  // links of one place do not serve another
  const std::string name = all == candidate.content ? candidate.content : discovery::hash_text(all);
  want(trust::make_private_folder(store));
  const fs::path folder = fs::path(store) / name;
  want(hold_copy(folder.string()));
  for (const discovery::Companion& companion : candidate.companions) {
    const fs::path target = folder / companion.name;
    if (target.parent_path() != folder) want(trust::make_private_folder(target.parent_path().string()));
    put_file(target.string(), companion.path, companion.hash);
  }
  const std::string copy = (folder / fs::path(candidate.path).filename()).string();
  put_file(copy, candidate.path, candidate.content);
  if (!candidate.must_be_copied) link_neighbours(folder, beside);
  prune_store(store, {});
  return copy;
}

}  // namespace anyattn::loader
