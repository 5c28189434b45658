// SPDX-License-Identifier: Apache-2.0
// Any bytes as the archive of a bundle: unpacked into a folder of ours, or refused; never a file that is no plain one, elsewhere or
// deeper than allowed.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

#include "bundle/archive.h"
#include "common/failure.h"
#include "security/harnesses.h"
#include "temp_dir.h"

namespace anyattn::fuzzing {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBlock = 512;
constexpr size_t kDeepest = 9;  // eight folders and a file
constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-";

// ustar: name [100], mode [8], uid [8], gid [8], size [12], mtime [12], checksum [8], ...
constexpr size_t kNameBytes = 100, kSizeAt = 124, kChecksumAt = 148, kChecksumBytes = 8;

void write_checksum(uint8_t* header) {
  std::memset(header + kChecksumAt, ' ', kChecksumBytes);
  unsigned sum = 0;
  for (size_t i = 0; i < kBlock; ++i) sum += header[i];
  std::snprintf(reinterpret_cast<char*>(header + kChecksumAt), kChecksumBytes, "%06o", sum);
}

// Up to the block of zeros that ends an archive, as far as sizes lead.
std::vector<uint8_t*> headers_in(uint8_t* data, size_t size) {
  std::vector<uint8_t*> headers;
  for (size_t at = 0; size - at >= kBlock;) {
    uint8_t* header = data + at;
    if (std::all_of(header, header + kBlock, [](uint8_t byte) { return byte == 0; })) break;
    headers.push_back(header);
    const std::string digits(reinterpret_cast<const char*>(header + kSizeAt), 11);
    const size_t content = std::strtoull(digits.c_str(), nullptr, 8);
    const size_t step = kBlock + (content + kBlock - 1) / kBlock * kBlock;
    if (step > size - at) break;
    at += step;
  }
  return headers;
}

}  // namespace

void repair_archive(uint8_t* data, size_t size) {
  for (uint8_t* header : headers_in(data, size)) write_checksum(header);
}

std::span<uint8_t> name_in_archive(uint8_t* data, size_t size, uint32_t which) {
  const std::vector<uint8_t*> headers = headers_in(data, size);
  if (headers.empty()) return {};
  return {headers[which % headers.size()], kNameBytes};
}

void run_archive(const uint8_t* data, size_t size) {
  static const testing::TempDir place;  // of the process
  const fs::path file = place.folder() / "f", folder = place.folder() / "to";
  std::ofstream(file, std::ios::binary).write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  fs::remove_all(folder);
  fs::create_directory(folder);
  try {
    tools::unpack(file.string(), folder.string());
    require(!tools::files_below(folder.string()).empty(), "what was unpacked holds a file");
  } catch (const tools::Failure& failure) {
    require(std::string_view(failure.what()).starts_with(file.string()), "a refusal names the archive");
  }
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    require(!entry.is_symlink() && (entry.is_directory() || entry.is_regular_file()), "only files and folders are made");
    const fs::path name = entry.path().lexically_relative(folder);
    require(static_cast<size_t>(std::distance(name.begin(), name.end())) <= kDeepest, "no name is deeper than allowed");
    const std::string last = name.filename();
    require(last.front() != '.' && last.find_first_not_of(kPlain) == std::string::npos, "every name is a plain one");
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(place.folder()))
    require(entry.path() == file || entry.path() == folder, "nothing is written elsewhere");
}

}  // namespace anyattn::fuzzing
