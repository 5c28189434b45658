// SPDX-License-Identifier: Apache-2.0
#include "discovery/seen_files.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <stdexcept>

#include "inspect/device_code.h"
#include "trust/private_folder.h"

namespace anyattn::discovery {
namespace {

constexpr const char* kName = "seen_files";
constexpr std::string_view kMark = "anyattn seen files 1\n";  // another number is read as nothing
constexpr size_t kHashDigits = 64;
constexpr uint64_t kMaxItems = 1 << 20;

// Numbers as eight bytes, texts and lists with their length in front.
class Writer {
 public:
  std::string text;
  void put(uint64_t value) { text.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void put(int64_t value) { put(static_cast<uint64_t>(value)); }
  void put(uint32_t value) { put(uint64_t{value}); }
  void put(bool value) { put(uint64_t{value}); }
  void put(const std::string& value) {
    put(uint64_t{value.size()});
    text += value;
  }
  template <class A, class B>
  void put(const std::pair<A, B>& value) {
    put(value.first);
    put(value.second);
  }
  template <class List>
  void list(const List& values) {
    put(uint64_t{values.size()});
    for (const auto& value : values) put(value);
  }
};

class Reader {
 public:
  explicit Reader(std::string_view text) : left_(text) {}
  bool at_end() const { return left_.empty(); }
  void get(uint64_t& value) { std::memcpy(&value, take(sizeof value).data(), sizeof value); }
  void get(int64_t& value) { value = static_cast<int64_t>(number()); }
  void get(uint32_t& value) { value = static_cast<uint32_t>(number()); }
  void get(bool& value) { value = number() != 0; }
  void get(std::string& value) { value = take(number()); }
  template <class A, class B>
  void get(std::pair<A, B>& value) {
    get(value.first);
    get(value.second);
  }
  template <class Value, class Add>
  void list(Add&& add) {
    const uint64_t count = number();
    if (count > kMaxItems) throw std::runtime_error("a list too long");
    for (uint64_t i = 0; i < count; ++i) {
      Value value;
      get(value);
      add(std::move(value));
    }
  }

 private:
  uint64_t number() {
    uint64_t value = 0;
    get(value);
    return value;
  }
  std::string_view take(uint64_t size) {
    if (size > left_.size()) throw std::runtime_error("cut short");
    const std::string_view taken = left_.substr(0, size);
    left_.remove_prefix(size);
    return taken;
  }
  std::string_view left_;
};

void write(Writer& out, const SeenFile& file) {
  out.put(file.path);
  for (const uint64_t value : {file.facts.device, file.facts.inode, file.facts.bytes}) out.put(value);
  out.put(file.facts.modified_ns);
  out.put(file.facts.changed_ns);
  out.put(file.content);
  out.put(file.abi_major);
  out.list(file.device_code);
  out.list(file.needed);
  out.put(file.rpath);
  out.put(file.runpath);
  out.list(file.needed_versions);
  out.list(file.undefined);
}

SeenFile read_one(Reader& in) {
  SeenFile file;
  in.get(file.path);
  for (uint64_t* value : {&file.facts.device, &file.facts.inode, &file.facts.bytes}) in.get(*value);
  in.get(file.facts.modified_ns);
  in.get(file.facts.changed_ns);
  in.get(file.content);
  in.get(file.abi_major);
  in.list<std::string>([&](std::string value) { file.device_code.insert(std::move(value)); });
  in.list<std::string>([&](std::string value) { file.needed.push_back(std::move(value)); });
  in.get(file.rpath);
  in.get(file.runpath);
  in.list<std::pair<std::string, std::string>>([&](auto value) { file.needed_versions.push_back(std::move(value)); });
  in.list<std::pair<std::string, bool>>([&](auto value) { file.undefined.push_back(std::move(value)); });
  return file;
}

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

inspect::ElfFile SeenFile::needs() const {
  inspect::ElfFile file;
  file.needed.assign(needed.begin(), needed.end());
  file.rpath = rpath;
  file.runpath = runpath;
  for (const auto& [library, name] : needed_versions) file.needed_versions.push_back({library, name});
  for (const auto& [name, weak] : undefined) file.undefined.push_back({name, weak, false});
  return file;
}

SeenFile look_at(const std::string& path, const FileContent& content, uint32_t abi_major) {
  SeenFile seen;
  seen.path = path;
  seen.facts = content.facts;
  seen.content = content.hash;
  seen.abi_major = abi_major;
  seen.device_code = inspect::device_code(content.bytes);
  inspect::ElfFile file;
  if (inspect::read_elf(content.bytes, file)) return seen;  // inspected already
  seen.needed.assign(file.needed.begin(), file.needed.end());
  seen.rpath = file.rpath;
  seen.runpath = file.runpath;
  for (const inspect::SymbolVersion& version : file.needed_versions)
    seen.needed_versions.emplace_back(version.file, version.name);
  for (const inspect::Symbol& symbol : file.undefined) seen.undefined.emplace_back(symbol.name, symbol.weak);
  return seen;
}

SeenFiles::SeenFiles(std::string folder, std::string host, int64_t settled_seconds)
    : folder_(std::move(folder)), host_(std::move(host)), settled_seconds_(settled_seconds) {}

std::shared_ptr<const SeenFile> SeenFiles::find(const std::string& path, uint32_t abi_major) {
  const std::lock_guard lock(mutex_);
  if (!is_read_) read();
  const auto known = files_.find(path);
  if (known == files_.end() || known->second->abi_major != abi_major) return nullptr;
  const std::optional<FileFacts> facts = facts_of(path);
  return facts && *facts == known->second->facts ? known->second : nullptr;
}

void SeenFiles::keep(std::shared_ptr<const SeenFile> file) {
  if (now_ns() - std::max(file->facts.modified_ns, file->facts.changed_ns) < settled_seconds_ * 1'000'000'000) return;
  const std::lock_guard lock(mutex_);
  if (!is_read_) read();
  has_news_ = true;
  files_.insert_or_assign(file->path, std::move(file));
}

// Damage, or a folder of somebody else: nothing is known.
void SeenFiles::read() {
  is_read_ = true;
  if (folder_.empty() || !trust::is_private_folder(folder_)) return;
  const FileContent content = read_content((std::filesystem::path(folder_) / kName).string());
  const std::string_view text(reinterpret_cast<const char*>(content.bytes.data()), content.bytes.size());
  if (!text.starts_with(kMark) || text.size() < kMark.size() + kHashDigits) return;
  const std::string_view payload = text.substr(kMark.size() + kHashDigits);
  if (hash_text(payload) != text.substr(kMark.size(), kHashDigits)) return;
  try {
    Reader in(payload);
    std::string host;
    in.get(host);
    while (host == host_ && !in.at_end()) {
      auto file = std::make_shared<const SeenFile>(read_one(in));
      std::string path = file->path;
      files_.insert_or_assign(std::move(path), std::move(file));
    }
  } catch (const std::runtime_error&) {
    files_.clear();
  }
}

std::string SeenFiles::save() {
  const std::lock_guard lock(mutex_);
  if (!has_news_ || folder_.empty()) return {};
  // Files that are gone first, then whatever comes last by path: each is only read anew.
  if (files_.size() > kMostKept) std::erase_if(files_, [](const auto& entry) { return !facts_of(entry.first); });
  while (files_.size() > kMostKept) files_.erase(std::prev(files_.end()));
  Writer payload;
  payload.put(host_);
  for (const auto& [path, file] : files_) write(payload, *file);
  const std::string text = std::string(kMark) + hash_text(payload.text) + payload.text;
  std::string obstacle = trust::make_private_folder(folder_);
  if (obstacle.empty())
    obstacle =
        trust::write_private_file((std::filesystem::path(folder_) / kName).string(), std::as_bytes(std::span(text)), 0600);
  if (obstacle.empty()) has_news_ = false;
  return obstacle;
}

}  // namespace anyattn::discovery
