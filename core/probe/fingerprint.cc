// SPDX-License-Identifier: Apache-2.0
#include "probe/fingerprint.h"

#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <sodium.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "anyattn/types.h"

namespace anyattn::probe {
namespace {

namespace fs = std::filesystem;

std::string content_of(const fs::path& path) {
  std::ifstream stream(path);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

std::vector<std::string> sorted_names(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator(); entry.increment(error))
    names.push_back(entry->path().filename().string());
  std::ranges::sort(names);
  return names;
}

// Without asking a driver, which would start it in this process.
void add_gpus(std::vector<std::string>& lines) {
  for (const char* file : {"/proc/driver/nvidia/version", "/sys/module/nvidia/version", "/sys/module/amdgpu/version"})
    lines.push_back(fmt::format("{} {}", file, content_of(file)));
  const fs::path nvidia = "/proc/driver/nvidia/gpus";
  for (const std::string& gpu : sorted_names(nvidia)) lines.push_back(content_of(nvidia / gpu / "information"));
  const fs::path amd = "/sys/class/kfd/kfd/topology/nodes";
  for (const std::string& node : sorted_names(amd)) lines.push_back(content_of(amd / node / "properties"));
}

std::vector<std::string> collect(const std::string& helper) {
  std::vector<std::string> lines;
  lines.push_back(fmt::format("abi {}.{} from {}", ANYATTN_ABI_MAJOR, ANYATTN_ABI_MINOR, ANYATTN_ABI_MINOR_LOWEST));
  lines.push_back(fmt::format("libc {}", gnu_get_libc_version()));
  lines.push_back(file_facts(helper));
  add_gpus(lines);
  return lines;
}

}  // namespace

const std::vector<std::string>& machine_facts(const std::string& helper) {
  static const std::vector<std::string> lines = collect(helper);
  return lines;
}

std::string file_facts(const std::string& path) {
  struct stat facts{};
  if (::stat(path.c_str(), &facts) != 0) return path + " absent";
  return fmt::format("{} {} {} {} {}.{:09}", path, facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtim.tv_sec,
                     facts.st_mtim.tv_nsec);
}

std::string digest(const std::vector<std::string>& lines) {
  crypto_generichash_state state;
  crypto_generichash_init(&state, nullptr, 0, 32);
  for (const std::string& line : lines) {
    const uint64_t size = line.size();
    crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(&size), sizeof size);
    crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(line.data()), line.size());
  }
  std::array<unsigned char, 32> bytes{};
  crypto_generichash_final(&state, bytes.data(), bytes.size());
  std::string hex;
  for (const unsigned char byte : bytes) hex += fmt::format("{:02x}", byte);
  return hex;
}

}  // namespace anyattn::probe
