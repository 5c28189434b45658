// SPDX-License-Identifier: Apache-2.0
// What sound plugin files were found to be, kept from one start to the next under what the file system says of them, so that a
// start need not read them again. Included by discovery and the API.
//
// What rests on it: the listing only. A file that is opened is hashed again from its bytes and compared with the hash that was
// listed (loader.cc), in the child process too, so a wrong record here can refuse a good file and cannot open a changed one.
// Whoever can write to the folder is this user, who could as well change the plugins. Above trust.level none it is not used.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "discovery/content.h"
#include "inspect/elf.h"

namespace anyattn::discovery {

// A file that inspection found nothing wrong with, for hosts of one ABI major.
struct SeenFile {
  std::string path;  // canonical
  FileFacts facts;
  std::string content;  // BLAKE2b-256, hex
  uint32_t abi_major = 0;
  std::set<std::string> device_code;
  // What it needs of the process, as inspect::ElfFile has it.
  std::vector<std::string> needed;
  std::string rpath, runpath;
  std::vector<std::pair<std::string, std::string>> needed_versions;  // file, name
  std::vector<std::pair<std::string, bool>> undefined;               // name, weak

  // Those of ElfFile's fields; borrowed from this object.
  inspect::ElfFile needs() const;
};

// For bytes that inspection has passed.
SeenFile look_at(const std::string& path, const FileContent& content, uint32_t abi_major);

// Thread-safe. A folder that cannot be used keeps nothing, and nobody is the worse for it.
class SeenFiles {
 public:
  // A file changed less than this ago may change again without its times moving: it is not kept.
  static constexpr int64_t kSettledSeconds = 2;
  static constexpr size_t kMostKept = 512;

  // folder: absolute, made when first written to, for this user alone; empty: nothing is kept. host: names the build that looks
  // at files; what another one saw is not believed, since its rules may be others.
  SeenFiles(std::string folder, std::string host, int64_t settled_seconds = kSettledSeconds);

  // Null where the file is not known, or is not as it was.
  std::shared_ptr<const SeenFile> find(const std::string& path, uint32_t abi_major);
  void keep(std::shared_ptr<const SeenFile> file);
  // Writes what is new. Answers what is in the way, empty where all is kept.
  std::string save();

 private:
  void read();

  const std::string folder_;
  const std::string host_;
  const int64_t settled_seconds_;
  std::mutex mutex_;
  bool is_read_ = false;
  bool has_news_ = false;
  std::map<std::string, std::shared_ptr<const SeenFile>> files_;  // by path
};

}  // namespace anyattn::discovery
